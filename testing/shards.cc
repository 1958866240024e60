#include "tessera/testing/shards.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/tensor/reduce_op.h"
#include "tessera/testing/elements.h"

namespace tessera::testing {
namespace {

// Element `number`, in row-major order, of a dense tensor.
TensorView ElementOf(HostTensor& tensor, int64_t number) {
  std::byte* const data = tensor.view().as<std::byte>();
  const DType dtype = tensor.meta().dtype();
  return TensorView::Flat(data + number * SizeOf(dtype), dtype, 1);
}

// True if along every Partial axis the rank holds the value itself.
bool HoldsValue(const Layout& layout, const MeshCoords& coords) {
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (!layout.placement(axis).is_partial() || coords[axis] == 0) continue;
    const ReduceOp op = layout.placement(axis).op();
    if (op == ReduceOp::kSum || op == ReduceOp::kProduct) return false;
  }
  return true;
}

// What a rank holds that does not hold the value.
double IdentityOf(const Layout& layout) {
  for (const Placement& placement : layout.placements()) {
    if (!placement.is_partial()) continue;
    if (placement.op() == ReduceOp::kProduct) return 1.0;
  }
  return -0.0;
}

TensorMeta LocalMetaAt(const Layout& layout, const MeshCoords& coords) {
  return layout.LocalMeta(layout.mesh().RankAt(coords));
}

// The coordinates along the Partial axes, row-major, as one number.
int64_t AddendOf(const Layout& layout, const MeshCoords& coords) {
  int64_t number = 0;
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (!layout.placement(axis).is_partial()) continue;
    number = number * layout.mesh().axis(axis).size + coords[axis];
  }
  return number;
}

// One element of the whole: who holds the addends of its value.
struct Holder {
  size_t rank;    // row-major
  int64_t place;  // of the element in what the rank holds
};
using Addends = std::map<int64_t, Holder>;

absl::Status CheckPieces(absl::Span<const HostTensor> pieces,
                         const Layout& layout,
                         absl::Span<const MeshCoords> ranks) {
  if (pieces.size() != ranks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("testing: want one piece for each of the ", ranks.size(),
                     " ranks of mesh '", layout.mesh().ToString(), "', found ",
                     pieces.size()));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const TensorMeta wanted = LocalMetaAt(layout, ranks[i]);
    if (pieces[i].meta() == wanted) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "testing: want ", wanted.ToString(), " as piece ", i, " of ",
        layout.ToString(), ", found ", pieces[i].meta().ToString()));
  }
  return absl::OkStatus();
}

absl::Status ReplicasDiffer(const Layout& layout, int64_t element,
                            const Holder& a, double a_value, const Holder& b,
                            double b_value) {
  return absl::InvalidArgumentError(absl::StrCat(
      "testing: want replicas of element ", element, " of ", layout.ToString(),
      " that are alike, found ", a_value, " in piece ", a.rank, " and ",
      b_value, " in piece ", b.rank));
}

// Every element's addends, one of the replicas for each.
absl::StatusOr<std::vector<Addends>> FindAddends(
    std::vector<HostTensor>& pieces, const Layout& layout,
    absl::Span<const MeshCoords> ranks) {
  std::vector<Addends> found(layout.meta().num_elements());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int64_t addend = AddendOf(layout, ranks[rank]);
    int64_t place = 0;
    for (int64_t element : internal::HeldElements(layout, ranks[rank])) {
      const Holder holder = {rank, place++};
      const auto [entry, is_new] = found[element].try_emplace(addend, holder);
      const Holder& first = entry->second;
      HostTensor& piece = pieces[rank];
      HostTensor& other = pieces[first.rank];
      const int64_t size = SizeOf(layout.dtype());
      const bool alike =
          is_new || piece.bytes().subspan(holder.place * size, size) ==
                        other.bytes().subspan(first.place * size, size);
      if (alike) continue;
      return ReplicasDiffer(layout, element, first, other.At(first.place),
                            holder, piece.At(holder.place));
    }
  }
  return found;
}

// What the addends mean, row-major over the Partial axes.
// Overwrites `addends`.
TensorView ReducePartial(const Layout& layout, HostTensor& addends) {
  int64_t count = addends.meta().num_elements();
  for (int axis = layout.mesh().num_axes() - 1; axis >= 0; --axis) {
    if (!layout.placement(axis).is_partial()) continue;
    const int64_t size = layout.mesh().axis(axis).size;
    count /= size;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<TensorView> group;
      for (int64_t j = 0; j < size; ++j) {
        group.push_back(ElementOf(addends, i * size + j));
      }
      HostTensor reduced(group[0].meta());
      ReduceElements(layout.placement(axis).op(), reduced.view(), group);
      CopyElements(ElementOf(addends, i), reduced.view());
    }
  }
  return ElementOf(addends, 0);
}

}  // namespace

HostTensor Arange(const TensorMeta& meta) {
  HostTensor whole(meta);
  for (int64_t i = 0; i < meta.num_elements(); ++i) {
    FillElements(ElementOf(whole, i), static_cast<double>(i));
  }
  return whole;
}

absl::StatusOr<std::vector<HostTensor>> Shards(const HostTensor& whole,
                                               const Layout& layout) {
  if (whole.meta() != layout.meta()) {
    return absl::InvalidArgumentError(
        absl::StrCat("testing: want a whole ", layout.meta().ToString(),
                     " to shard, found ", whole.meta().ToString()));
  }
  HostTensor source = whole;
  std::vector<HostTensor> pieces;
  for (const MeshCoords& coords : internal::AllCoords(layout.mesh())) {
    HostTensor& piece = pieces.emplace_back(LocalMetaAt(layout, coords));
    if (!HoldsValue(layout, coords)) {
      FillElements(piece.view(), IdentityOf(layout));
      continue;
    }
    int64_t place = 0;
    for (int64_t element : internal::HeldElements(layout, coords)) {
      CopyElements(ElementOf(piece, place++), ElementOf(source, element));
    }
  }
  return pieces;
}

absl::StatusOr<HostTensor> Reassemble(absl::Span<const HostTensor> pieces,
                                      const Layout& layout) {
  const std::vector<MeshCoords> ranks = internal::AllCoords(layout.mesh());
  TESSERA_RETURN_IF_ERROR(CheckPieces(pieces, layout, ranks));
  std::vector<HostTensor> sources(pieces.begin(), pieces.end());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Addends> found,
                           FindAddends(sources, layout, ranks));
  HostTensor whole(layout.meta());
  for (int64_t element = 0; element < layout.meta().num_elements(); ++element) {
    const Addends& holders = found[element];
    TESSERA_ASSIGN_OR_RETURN(
        const TensorMeta meta,
        TensorMeta::Create(layout.dtype(),
                           {static_cast<int64_t>(holders.size())}));
    HostTensor addends(meta);
    for (const auto& [number, holder] : holders) {
      CopyElements(ElementOf(addends, number),
                   ElementOf(sources[holder.rank], holder.place));
    }
    CopyElements(ElementOf(whole, element), ReducePartial(layout, addends));
  }
  return whole;
}

absl::Status Fill(const Layout& layout, int rank, const TensorView& local,
                  absl::FunctionRef<double(int64_t)> value) {
  const TensorMeta wanted = layout.LocalMeta(rank);
  if (local.meta() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "testing: want ", wanted.ToString(), " to fill for rank ", rank, " of ",
        layout.ToString(), ", found ", local.meta().ToString()));
  }
  const std::optional<MeshCoords> coords = layout.mesh().CoordsOf(rank);
  if (!coords.has_value()) return absl::OkStatus();  // holds nothing
  HostTensor piece(wanted);
  const bool holds_value = HoldsValue(layout, *coords);
  int64_t place = 0;
  for (int64_t element : internal::HeldElements(layout, *coords)) {
    FillElements(ElementOf(piece, place++),
                 holds_value ? value(element) : IdentityOf(layout));
  }
  CopyElements(local, piece.view());
  return absl::OkStatus();
}

}  // namespace tessera::testing
