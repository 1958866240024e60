#include "tessera/comm/mpi/call_codec.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera::internal {
namespace {

// Numbers one behind the other.
class Writer {
 public:
  Writer() { bytes_.reserve(kUsualBytes); }
  void Add(int64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  std::string Take() { return std::move(bytes_); }

 private:
  static constexpr size_t kUsualBytes = 256;  // enough for most launches

  std::string bytes_;
};

// Reads them; 0 from the end on, which it notes.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  int64_t Next() {
    int64_t number = 0;
    if (rest_.size() < sizeof(number)) {
      ok_ = false;
      return 0;
    }
    std::memcpy(&number, rest_.data(), sizeof(number));
    rest_.remove_prefix(sizeof(number));
    return number;
  }
  // How many things follow, of at least one number each.
  int64_t NextCount() {
    const int64_t count = Next();
    if (count >= 0 && count <= Left()) return count;
    ok_ = false;
    return 0;
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return rest_.empty(); }

 private:
  int64_t Left() const {
    return static_cast<int64_t>(rest_.size() / sizeof(int64_t));
  }

  absl::string_view rest_;
  bool ok_ = true;
};

void AddMeta(const TensorMeta& meta, Writer& out) {
  out.Add(static_cast<int64_t>(meta.dtype()));
  out.Add(meta.shape().num_dims());
  for (int64_t extent : meta.shape().extents()) out.Add(extent);
}

TensorView NextView(Reader& in) {
  const auto dtype = static_cast<DType>(in.Next());
  std::vector<int64_t> extents(in.NextCount());
  for (int64_t& extent : extents) extent = in.Next();
  const absl::StatusOr<TensorMeta> meta = TensorMeta::Create(dtype, extents);
  return meta.ok() ? TensorView(nullptr, *meta) : TensorView();
}

// A dim and how it is cut: 0 sizes for the shard rule.
void AddCut(const TensorView& view, int dim, const ExtentSplit& split,
            int group_size, Writer& out) {
  out.Add(dim);
  out.Add(split.is_ceil() ? 0 : group_size);
  if (split.is_ceil()) return;
  for (int i = 0; i < group_size; ++i) {
    out.Add(split.Piece(view.shape().extent(dim), group_size, i).size());
  }
}

void NextCut(Reader& in, int& dim, ExtentSplit& split) {
  dim = static_cast<int>(in.Next());
  std::vector<int64_t> sizes(in.NextCount());
  for (int64_t& size : sizes) size = in.Next();
  if (!sizes.empty()) split = ExtentSplit::Explicit(sizes).value_or(split);
}

void AddTransfers(absl::Span<const Transfer> transfers, Writer& out) {
  out.Add(static_cast<int64_t>(transfers.size()));
  for (const Transfer& t : transfers) {
    out.Add(t.peer);
    AddMeta(t.view.meta(), out);
  }
}

std::vector<Transfer> NextTransfers(Reader& in) {
  std::vector<Transfer> transfers(in.NextCount());
  for (Transfer& t : transfers) {
    t.peer = static_cast<int>(in.Next());
    t.view = NextView(in);
  }
  return transfers;
}

// The fields that Collective::Matches compares, and what pieces of all_to_all
// and messages of send_recv follow from.
void AddCall(const Collective& call, int group_size, Writer& out) {
  out.Add(static_cast<int64_t>(call.kind));
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      out.Add(static_cast<int64_t>(call.op));
      return AddMeta(call.send.meta(), out);
    case CollectiveKind::kReduceScatter:
      out.Add(static_cast<int64_t>(call.op));
      AddMeta(call.send.meta(), out);
      return AddCut(call.send, call.send_dim, call.send_split, group_size, out);
    case CollectiveKind::kAllGather:
      AddMeta(call.recv.meta(), out);
      return AddCut(call.recv, call.recv_dim, call.recv_split, group_size, out);
    case CollectiveKind::kAllToAll:
      AddMeta(call.send.meta(), out);
      AddCut(call.send, call.send_dim, call.send_split, group_size, out);
      AddMeta(call.recv.meta(), out);
      return AddCut(call.recv, call.recv_dim, call.recv_split, group_size, out);
    case CollectiveKind::kBroadcast:
      AddMeta(call.recv.meta(), out);
      return out.Add(call.root);
    case CollectiveKind::kSendRecv:
      AddTransfers(call.sends, out);
      return AddTransfers(call.recvs, out);
    case CollectiveKind::kBarrier:
      return;
  }
}

Collective NextCall(Reader& in, std::deque<std::vector<Transfer>>& transfers) {
  Collective call;
  call.kind = static_cast<CollectiveKind>(in.Next());
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      call.op = static_cast<ReduceOp>(in.Next());
      call.send = NextView(in);
      break;
    case CollectiveKind::kReduceScatter:
      call.op = static_cast<ReduceOp>(in.Next());
      call.send = NextView(in);
      NextCut(in, call.send_dim, call.send_split);
      break;
    case CollectiveKind::kAllGather:
      call.recv = NextView(in);
      NextCut(in, call.recv_dim, call.recv_split);
      break;
    case CollectiveKind::kAllToAll:
      call.send = NextView(in);
      NextCut(in, call.send_dim, call.send_split);
      call.recv = NextView(in);
      NextCut(in, call.recv_dim, call.recv_split);
      break;
    case CollectiveKind::kBroadcast:
      call.recv = NextView(in);
      call.root = static_cast<int>(in.Next());
      break;
    case CollectiveKind::kSendRecv:
      call.sends = transfers.emplace_back(NextTransfers(in));
      call.recvs = transfers.emplace_back(NextTransfers(in));
      break;
    case CollectiveKind::kBarrier:
      break;
  }
  return call;
}

}  // namespace

std::string EncodeCalls(absl::Span<const Collective> calls, int group_size) {
  Writer out;
  out.Add(static_cast<int64_t>(calls.size()));
  for (const Collective& call : calls) AddCall(call, group_size, out);
  return out.Take();
}

bool MayDiffer(absl::Span<const Collective> calls) {
  return std::any_of(calls.begin(), calls.end(), [](const Collective& call) {
    return call.kind == CollectiveKind::kAllToAll ||
           call.kind == CollectiveKind::kSendRecv;
  });
}

absl::Status DecodedCalls::Decode(absl::string_view bytes) {
  Reader in(bytes);
  const int64_t count = in.NextCount();
  for (int64_t i = 0; i < count; ++i) {
    calls_.push_back(NextCall(in, transfers_));
  }
  if (in.ok() && in.AtEnd()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("comm: another rank's calls make no sense in ", bytes.size(),
                   " bytes; do all run the same program?"));
}

}  // namespace tessera::internal
