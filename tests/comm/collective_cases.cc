#include "tests/comm/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::testing {
namespace {

constexpr char kPoison = '\xa5';

Shape ShapeOf(const std::vector<int64_t>& extents) {
  return Shape::Create(extents).value();
}

TensorMeta Meta(DType dtype, const std::vector<int64_t>& extents) {
  return TensorMeta::Create(dtype, ShapeOf(extents)).value();
}

// Calls visit(pointer) for the elements of `view` in row-major order.
template <typename Visitor>
void ForEachElement(const TensorView& view, Visitor visit) {
  const int num_dims = view.shape().num_dims();
  std::vector<int64_t> index(num_dims, 0);
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    int64_t offset = 0;
    for (int d = 0; d < num_dims; ++d) offset += index[d] * view.strides()[d];
    visit(view.as<char>() + offset * SizeOf(view.dtype()));
    for (int d = num_dims - 1; d >= 0; --d) {
      if (++index[d] < view.shape().extent(d)) break;
      index[d] = 0;
    }
  }
}

// The elements of `whole`, packed, that lie in `piece` along `dim`.
std::string PackPiece(std::string whole, const TensorMeta& meta, int dim,
                      Interval piece) {
  return Pack(TensorView(whole.data(), meta).Slice(dim, piece));
}

Interval PieceOf(const ExtentSplit& split, const std::vector<int64_t>& extents,
                 int dim, int parts, int index) {
  return split.Piece(extents[dim], parts, index);
}

TensorMeta PieceMeta(const CollectiveCase& c, int dim, const ExtentSplit& split,
                     int index) {
  std::vector<int64_t> extents = c.extents;
  extents[dim] = PieceOf(split, c.extents, dim, c.ranks, index).size();
  return Meta(c.dtype, extents);
}

// Strides with gaps behind every row and every element.
TensorView Roomy(char* data, const TensorMeta& meta) {
  std::vector<int64_t> strides(meta.shape().num_dims());
  int64_t stride = 2;
  for (int d = meta.shape().num_dims() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= meta.shape().extent(d) + 1;
  }
  return TensorView::Strided(data, meta, strides).value();
}

TensorView MakeView(char* data, const TensorMeta& meta, bool strided) {
  return strided ? Roomy(data, meta) : TensorView(data, meta);
}

// The same view of the memory at `to` instead of `from`.
TensorView Moved(const TensorView& view, const char* from, char* to) {
  return TensorView::Strided(to + (view.as<char>() - from), view.meta(),
                             view.strides())
      .value();
}

template <typename T>
T CombineValues(ReduceOp op, const std::vector<T>& values) {
  constexpr bool kHalf =
      std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
  using Wide = std::conditional_t<kHalf, float, T>;
  Wide result = static_cast<Wide>(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    const Wide value = static_cast<Wide>(values[i]);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        if constexpr (std::is_integral_v<Wide>) {
          using Unsigned = std::make_unsigned_t<Wide>;
          result = static_cast<Wide>(static_cast<Unsigned>(result) +
                                     static_cast<Unsigned>(value));
        } else {
          result += value;
        }
        break;
      case ReduceOp::kProduct:
        if constexpr (std::is_integral_v<Wide>) {
          using Unsigned = std::make_unsigned_t<Wide>;
          result = static_cast<Wide>(static_cast<Unsigned>(result) *
                                     static_cast<Unsigned>(value));
        } else {
          result *= value;
        }
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
    }
  }
  if (op == ReduceOp::kAvg) result /= static_cast<Wide>(values.size());
  return static_cast<T>(result);
}

// The elements of `packed`, multiplied in f64 and rounded to f32 in between.
std::string Scaled(std::string packed, DType dtype, double factor) {
  VisitDType(dtype, [&]<typename T>() {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    for (size_t at = 0; at < packed.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, packed.data() + at, sizeof(T));
      value =
          static_cast<T>(static_cast<Wide>(static_cast<Wide>(value) * factor));
      std::memcpy(packed.data() + at, &value, sizeof(T));
    }
  });
  return packed;
}

}  // namespace

std::string Pack(const TensorView& view) {
  if (view.IsContiguous()) {
    return std::string(view.as<char>(), view.num_bytes());
  }
  std::string packed;
  const int64_t size = SizeOf(view.dtype());
  ForEachElement(view, [&](const char* p) { packed.append(p, size); });
  return packed;
}

void Unpack(const std::string& packed, const TensorView& view) {
  if (view.IsContiguous()) {
    std::copy(packed.begin(), packed.end(), view.as<char>());
    return;
  }
  const int64_t size = SizeOf(view.dtype());
  const char* from = packed.data();
  ForEachElement(view, [&](char* p) {
    std::memcpy(p, from, size);
    from += size;
  });
}

std::string Combine(ReduceOp op, DType dtype,
                    const std::vector<std::string>& packed) {
  std::string result = packed[0];
  VisitDType(dtype, [&]<typename T>() {
    std::vector<T> values(packed.size());
    for (size_t at = 0; at < result.size(); at += sizeof(T)) {
      for (size_t i = 0; i < packed.size(); ++i) {
        std::memcpy(&values[i], packed[i].data() + at, sizeof(T));
      }
      const T value = CombineValues<T>(op, values);
      std::memcpy(result.data() + at, &value, sizeof(T));
    }
  });
  return result;
}

std::string RandomElements(DType dtype, int64_t count, uint64_t seed) {
  constexpr int64_t kPeriod = 10007;  // no piece of a tensor is a multiple
  std::mt19937_64 random(seed);
  std::string packed(count * SizeOf(dtype), '\0');
  VisitDType(dtype, [&]<typename T>() {
    for (int64_t i = 0; i < std::min(count, kPeriod); ++i) {
      T value;
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(random());
      } else {
        const auto mantissa =
            static_cast<float>(static_cast<int32_t>(random()));
        const int exponent = static_cast<int>(random() % 12) - 35;
        value = static_cast<T>(std::ldexp(mantissa, exponent));
      }
      std::memcpy(packed.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  const size_t period = kPeriod * SizeOf(dtype);
  for (size_t at = period; at < packed.size(); at += period) {
    std::memcpy(&packed[at], &packed[0], std::min(period, packed.size() - at));
  }
  return packed;
}

std::string CollectiveCase::ToString() const {
  return absl::StrCat(CollectiveKindName(kind), " ", ReduceOpName(op), " ",
                      Meta(dtype, extents).ToString(), " over ", ranks,
                      " ranks, dim ", dim, " split ", split.ToString(),
                      ", recv_dim ", recv_dim, " split ", recv_split.ToString(),
                      ", root ", root, ", place ", static_cast<int>(place));
}

CollectiveRun::CollectiveRun(const CollectiveCase& c, uint64_t seed,
                             Averaging averaging)
    : case_(c), averaging_(averaging), ranks_(c.ranks) {
  const TensorMeta whole = Meta(c.dtype, c.extents);
  for (int r = 0; r < c.ranks; ++r) {
    RankMemory& memory = ranks_[r];
    TensorMeta send = whole;
    TensorMeta recv = whole;
    if (c.kind == CollectiveKind::kReduceScatter) {
      recv = PieceMeta(c, c.dim, c.split, r);
    } else if (c.kind == CollectiveKind::kAllGather) {
      send = PieceMeta(c, c.dim, c.split, r);
    } else if (c.kind == CollectiveKind::kAllToAll) {
      send = PieceMeta(c, c.recv_dim, c.recv_split, r);
      recv = PieceMeta(c, c.dim, c.split, r);
    }
    LayOut(memory, send, recv, r);
    memory.sent = RandomElements(c.dtype, send.num_elements(), seed + r);
    Unpack(memory.sent, memory.send);
    memory.initial = memory.bytes;
  }
  whole_result_ = WholeResult();
}

void CollectiveRun::LayOut(RankMemory& memory, const TensorMeta& send,
                           const TensorMeta& recv, int rank) {
  const CollectiveCase& c = case_;
  const bool strided =
      c.place == Place::kStrided || c.place == Place::kStridedInPlace;
  const bool in_place = c.kind == CollectiveKind::kBroadcast ||
                        c.place == Place::kInPlace ||
                        c.place == Place::kStridedInPlace;
  // Aligned for every dtype; behind the last element lies poison, too.
  const auto room = [&](const TensorMeta& meta) {
    return MakeView(nullptr, meta, strided).SpanBytes() / 16 * 16 + 32;
  };
  memory.bytes.assign(room(send) + room(recv), kPoison);
  char* const first = memory.bytes.data();
  char* const second = first + room(send);
  memory.send = MakeView(first, send, strided);
  memory.recv = MakeView(second, recv, strided);
  if (!in_place) return;
  const Interval piece =
      c.extents.empty() ? Interval{}
                        : PieceOf(c.split, c.extents, c.dim, c.ranks, rank);
  if (c.kind == CollectiveKind::kReduceScatter) {
    memory.recv = memory.send.Slice(c.dim, piece);
  } else if (c.kind == CollectiveKind::kAllGather) {
    memory.send = memory.recv.Slice(c.dim, piece);
  } else {
    memory.recv = memory.send;
  }
}

TensorView CollectiveRun::Memory(int rank) {
  std::vector<char>& bytes = ranks_[rank].bytes;
  return TensorView::Flat(
      bytes.data(), DType::kI32,
      static_cast<int64_t>(bytes.size()) / SizeOf(DType::kI32));
}

Collective CollectiveRun::Call(int rank) const {
  const CollectiveCase& c = case_;
  Collective call;
  call.kind = c.kind;
  call.op = c.op;
  call.send = ranks_[rank].send;
  call.recv = ranks_[rank].recv;
  call.send_dim = c.dim;
  call.send_split = c.split;
  call.recv_dim = c.dim;
  call.recv_split = c.split;
  call.root = c.root;
  if (c.kind == CollectiveKind::kAllToAll) {
    call.recv_dim = c.recv_dim;
    call.recv_split = c.recv_split;
  }
  return call;
}

Collective CollectiveRun::Call(int rank, char* memory) const {
  Collective call = Call(rank);
  call.send = Moved(call.send, ranks_[rank].bytes.data(), memory);
  call.recv = Moved(call.recv, ranks_[rank].bytes.data(), memory);
  return call;
}

std::string CollectiveRun::WholeResult() const {
  const CollectiveCase& c = case_;
  std::vector<std::string> sent;
  for (const RankMemory& memory : ranks_) sent.push_back(memory.sent);
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      if (c.op == ReduceOp::kAvg && averaging_ == Averaging::kAfterwards) {
        return Scaled(Combine(ReduceOp::kSum, c.dtype, sent), c.dtype,
                      1.0 / c.ranks);
      }
      return Combine(c.op, c.dtype, sent);
    case CollectiveKind::kBroadcast:
      return sent[c.root];
    default:
      break;
  }
  const bool gather = c.kind == CollectiveKind::kAllGather;
  const int dim = gather ? c.dim : c.recv_dim;
  const ExtentSplit& split = gather ? c.split : c.recv_split;
  const TensorMeta meta = Meta(c.dtype, c.extents);
  std::string whole(meta.num_bytes(), kPoison);
  for (int r = 0; r < c.ranks; ++r) {
    const Interval piece = PieceOf(split, c.extents, dim, c.ranks, r);
    Unpack(sent[r], TensorView(whole.data(), meta).Slice(dim, piece));
  }
  return whole;
}

std::string CollectiveRun::Expected(int rank) const {
  const CollectiveCase& c = case_;
  if (c.kind != CollectiveKind::kReduceScatter &&
      c.kind != CollectiveKind::kAllToAll) {
    return whole_result_;
  }
  return PackPiece(whole_result_, Meta(c.dtype, c.extents), c.dim,
                   PieceOf(c.split, c.extents, c.dim, c.ranks, rank));
}

std::string CollectiveRun::Check(int rank) const {
  const RankMemory& memory = ranks_[rank];
  std::vector<char> expected = memory.initial;
  Unpack(Expected(rank),
         Moved(memory.recv, memory.bytes.data(), expected.data()));
  const auto difference =
      std::mismatch(memory.bytes.begin(), memory.bytes.end(), expected.begin());
  if (difference.first == memory.bytes.end()) return "";
  return absl::StrCat(case_.ToString(), ": rank ", rank, " differs at byte ",
                      difference.first - memory.bytes.begin(), " of ",
                      memory.bytes.size());
}

namespace {

// Sizes that add up to `extent`: small, empty and large ones.
ExtentSplit Uneven(int64_t extent, int parts) {
  std::vector<int64_t> sizes(parts, 0);
  int64_t rest = extent;
  for (int i = 1; i < parts; i += 2) {
    sizes[i] = extent / parts / 2;
    rest -= sizes[i];
  }
  sizes[parts / 2] += rest;
  return ExtentSplit::Explicit(sizes).value();
}

void AddOps(CollectiveCase c, std::vector<CollectiveCase>& cases) {
  for (ReduceOp op : kAllReduceOps) {
    if (op == ReduceOp::kAvg && !IsFloating(c.dtype)) continue;
    c.op = op;
    cases.push_back(c);
  }
}

// `c` without a kind, as every kind.
void AddKinds(CollectiveCase c, std::vector<CollectiveCase>& cases) {
  c.kind = CollectiveKind::kAllReduce;
  AddOps(c, cases);
  c.kind = CollectiveKind::kBroadcast;
  c.root = c.ranks - 1;
  cases.push_back(c);

  const int num_dims = static_cast<int>(c.extents.size());
  for (c.dim = 0; c.dim < num_dims; ++c.dim) {
    const ExtentSplit uneven = Uneven(c.extents[c.dim], c.ranks);
    for (const ExtentSplit& split : {ExtentSplit(), uneven}) {
      c.split = split;
      c.kind = CollectiveKind::kReduceScatter;
      AddOps(c, cases);
      c.kind = CollectiveKind::kAllGather;
      cases.push_back(c);
      if (num_dims < 2 || c.place == Place::kInPlace ||
          c.place == Place::kStridedInPlace) {
        continue;
      }
      c.kind = CollectiveKind::kAllToAll;
      c.recv_dim = c.dim == 0 ? 1 : 0;
      c.recv_split = split.is_ceil() ? Uneven(c.extents[c.recv_dim], c.ranks)
                                     : ExtentSplit();
      cases.push_back(c);
    }
  }
}

}  // namespace

std::vector<CollectiveCase> AllCollectiveCases(int ranks) {
  std::vector<CollectiveCase> cases;
  CollectiveCase c;
  c.ranks = ranks;
  for (Place place : kAllPlaces) {
    c.place = place;
    for (const auto& extents : std::vector<std::vector<int64_t>>{
             {}, {0}, {1}, {3}, {1023}, {5, 7}, {9, 0}, {4, 3, 10}}) {
      c.extents = extents;
      for (DType dtype : kAllDTypes) {
        c.dtype = dtype;
        AddKinds(c, cases);
      }
    }
  }
  // Enough for a backend to share the work among the ranks.
  c.dtype = DType::kF32;
  for (Place place : kAllPlaces) {
    c.place = place;
    c.extents = {67, 263};
    std::vector<CollectiveCase> large;
    AddKinds(c, large);
    std::erase_if(
        large, [](const CollectiveCase& l) { return l.op != ReduceOp::kSum; });
    cases.insert(cases.end(), large.begin(), large.end());
  }
  return cases;
}

std::vector<CollectiveCase> LargeCollectiveCases(int ranks) {
  CollectiveCase c;
  c.ranks = ranks;
  c.extents = {1 << 10, 1 << 10};
  c.recv_dim = 1;
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
        CollectiveKind::kAllGather, CollectiveKind::kAllToAll,
        CollectiveKind::kBroadcast}) {
    c.kind = kind;
    c.dtype = DType::kF32;
    c.split = ExtentSplit();
    cases.push_back(c);
    if (kind != CollectiveKind::kAllReduce &&
        kind != CollectiveKind::kReduceScatter) {
      continue;
    }
    c.dtype = DType::kBF16;
    c.split = Uneven(c.extents[0], ranks);
    cases.push_back(c);
  }
  return cases;
}

}  // namespace tessera::testing
