#include "tessera/testing/reference_executor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/tensor/reduce_op.h"
#include "tessera/testing/elements.h"

namespace tessera::testing {
namespace {

using internal::AllCoords;
using internal::HeldElements;

// What one rank holds.
class Piece {
 public:
  Piece(DType dtype, std::vector<int64_t> elements)
      : dtype_(dtype),
        elements_(std::move(elements)),
        bytes_(elements_.size() * SizeOf(dtype)) {}

  const std::vector<int64_t>& elements() const { return elements_; }
  bool Holds(int64_t element) const {
    return absl::c_binary_search(elements_, element);
  }
  // REQUIRES: Holds(element).
  TensorView At(int64_t element) {
    const int64_t place =
        absl::c_lower_bound(elements_, element) - elements_.begin();
    return TensorView::Flat(bytes_.data() + place * SizeOf(dtype_), dtype_, 1);
  }
  // All of it, as a tensor of this shape.
  TensorView As(const TensorMeta& meta) {
    return TensorView(bytes_.data(), meta);
  }

 private:
  DType dtype_;
  std::vector<int64_t> elements_;
  std::vector<unsigned char> bytes_;
};

// One per rank, row-major.
using Pieces = std::vector<Piece>;

// As `layout` has them; the values are yet to be written.
Pieces MakePieces(const Layout& layout) {
  Pieces pieces;
  for (const MeshCoords& coords : AllCoords(layout.mesh())) {
    pieces.emplace_back(layout.dtype(), HeldElements(layout, coords));
  }
  return pieces;
}

TensorMeta MetaAt(const Layout& layout, const MeshCoords& coords) {
  return TensorMeta::Create(layout.dtype(),
                            layout.RegionAt(coords).LocalShape())
      .value();
}

absl::Status CheckViews(absl::string_view what, const Layout& layout,
                        absl::Span<const TensorView> views) {
  const std::vector<MeshCoords> ranks = AllCoords(layout.mesh());
  if (views.size() != ranks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("reference: want one ", what, " for each of the ",
                     ranks.size(), " ranks of mesh '", layout.mesh().ToString(),
                     "', found ", views.size()));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const TensorMeta wanted = MetaAt(layout, ranks[i]);
    if (views[i].meta() == wanted) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("reference: want the ", what, " of rank ", i, " in ",
                     layout.ToString(), " to be a view of ", wanted.ToString(),
                     ", found ", views[i].meta().ToString()));
  }
  return absl::OkStatus();
}

bool AllKeepTheValue(ReduceOp op) {
  return op == ReduceOp::kAvg || op == ReduceOp::kMin || op == ReduceOp::kMax;
}

// One step, from what ranks hold to what they shall hold.
class StepRun {
 public:
  // REQUIRES: the step passes CheckStep.
  StepRun(const Step& step, Pieces& before)
      : step_(step),
        mesh_(step.before.mesh()),
        ranks_(AllCoords(mesh_)),
        before_(before) {}

  absl::StatusOr<Pieces> Run() {
    Pieces after = MakePieces(step_.after);
    for (size_t rank = 0; rank < after.size(); ++rank) {
      for (int64_t element : after[rank].elements()) {
        const absl::Status made =
            Make(static_cast<int>(rank), element, after[rank].At(element));
        if (made.ok()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(step_.Name(), " at element ", element, " of rank ",
                         rank, ": ", made.message()));
      }
    }
    return after;
  }

 private:
  absl::Status Make(int rank, int64_t element, const TensorView& out) {
    switch (step_.kind) {
      case StepKind::kRelabel:
      case StepKind::kSlice:
        return CopyFromOneOf({rank}, element, out);
      case StepKind::kFill:
        return Fill(rank, element, out);
      case StepKind::kScale:
        return Scale(rank, element, out);
      case StepKind::kAllGather:
      case StepKind::kAllToAll:
        return CopyFromOneOf(GroupOf(rank), element, out);
      case StepKind::kReduceScatter:
      case StepKind::kAllReduce:
        return Reduce(rank, element, out);
      case StepKind::kExchange:
        return Exchange(rank, element, out);
    }
    return absl::InvalidArgumentError("want a known kind of step");
  }

  absl::Status CopyFromOneOf(absl::Span<const int> ranks, int64_t element,
                             const TensorView& out) {
    for (int rank : ranks) {
      if (!before_[rank].Holds(element)) continue;
      CopyElements(out, before_[rank].At(element));
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("want one of the ranks (",
                                                   absl::StrJoin(ranks, ","),
                                                   ") to hold it, found none"));
  }

  absl::Status Reduce(int rank, int64_t element, const TensorView& out) {
    if (!From().is_partial()) {
      return absl::InvalidArgumentError("want something Partial to reduce");
    }
    std::vector<TensorView> addends;
    for (int member : GroupOf(rank)) {
      if (!before_[member].Holds(element)) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", member, " does not hold it"));
      }
      addends.push_back(before_[member].At(element));
    }
    ReduceElements(From().op(), out, addends);
    return absl::OkStatus();
  }

  // On one mesh the element is in the rank's group, else anywhere.
  absl::Status Exchange(int rank, int64_t element, const TensorView& out) {
    if (step_.before.HasPartial() || step_.after.HasPartial()) {
      return absl::InvalidArgumentError("want nothing Partial to exchange");
    }
    if (mesh_ == step_.after.mesh()) {
      return CopyFromOneOf(GroupOf(rank), element, out);
    }
    std::vector<int> everybody(ranks_.size());
    absl::c_iota(everybody, 0);
    return CopyFromOneOf(everybody, element, out);
  }

  // Of a shard the owner keeps the value, of a replica one rank or all.
  absl::Status Fill(int rank, int64_t element, const TensorView& out) {
    if (!To().is_partial()) {
      return absl::InvalidArgumentError("want something Partial to fill");
    }
    const bool keeps = From().is_shard()
                           ? before_[rank].Holds(element)
                           : AllKeepTheValue(To().op()) || IsFirstOfGroup(rank);
    if (keeps) return CopyFromOneOf({rank}, element, out);
    FillElements(out, To().op() == ReduceOp::kProduct ? 1.0 : -0.0);
    return absl::OkStatus();
  }

  absl::Status Scale(int rank, int64_t element, const TensorView& out) {
    const bool is_scaling = From().is_partial() && To().is_partial() &&
                            From() != To() && IsLinear(From().op()) &&
                            IsLinear(To().op());
    if (!is_scaling) {
      return absl::InvalidArgumentError("want a sum and an average to scale");
    }
    TESSERA_RETURN_IF_ERROR(CopyFromOneOf({rank}, element, out));
    const double size = static_cast<double>(GroupOf(rank).size());
    ScaleElements(out, To().op() == ReduceOp::kAvg ? size : 1.0 / size);
    return absl::OkStatus();
  }

  // The ranks that the named axes lead to from `rank`, the last of these axes
  // fastest.
  std::vector<int> GroupOf(int rank) const {
    std::vector<MeshCoords> members = {ranks_[rank]};
    for (int axis : step_.axes) {
      std::vector<MeshCoords> more;
      for (MeshCoords member : members) {
        for (member[axis] = 0; member[axis] < mesh_.axis(axis).size;
             ++member[axis]) {
          more.push_back(member);
        }
      }
      members = std::move(more);
    }
    std::vector<int> group;
    for (const MeshCoords& member : members) {
      group.push_back(
          static_cast<int>(absl::c_find(ranks_, member) - ranks_.begin()));
    }
    return group;
  }
  bool IsFirstOfGroup(int rank) const { return GroupOf(rank).front() == rank; }

  // The change along the first of the named axes. Not for exchanges, which may
  // name none.
  const Placement& From() const {
    return step_.before.placement(step_.axes.front());
  }
  const Placement& To() const {
    return step_.after.placement(step_.axes.front());
  }

  const Step& step_;
  const DeviceMesh& mesh_;
  const std::vector<MeshCoords> ranks_;
  Pieces& before_;
};

// True if ranks hold in one layout the elements that they hold in the other,
// and pieces of the same shape.
bool HoldsTheSame(const Layout& a, const Layout& b) {
  return a.meta() == b.meta() && a.mesh() == b.mesh() &&
         absl::c_all_of(AllCoords(a.mesh()), [&](const MeshCoords& coords) {
           return a.RegionAt(coords) == b.RegionAt(coords);
         });
}

absl::Status CheckStep(const Layout& at, const Step& step) {
  if (!HoldsTheSame(at, step.before)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ranks hold ", at.ToString(), ", want ", step.before.ToString()));
  }
  const bool is_exchange = step.kind == StepKind::kExchange;
  if (step.before.meta() != step.after.meta()) {
    return absl::InvalidArgumentError("want one tensor");
  }
  if (!is_exchange && step.before.mesh() != step.after.mesh()) {
    return absl::InvalidArgumentError("want one mesh but for an exchange");
  }
  const bool are_axes = absl::c_all_of(step.axes, [&](int axis) {
    return axis >= 0 && axis < step.before.mesh().num_axes();
  });
  if ((step.axes.empty() && !is_exchange) || !are_axes) {
    return absl::InvalidArgumentError("want axes of the mesh");
  }
  return absl::OkStatus();
}

absl::StatusOr<Pieces> RunStep(const Layout& at, const Step& step,
                               Pieces& before) {
  TESSERA_RETURN_IF_ERROR(CheckStep(at, step));
  return StepRun(step, before).Run();
}

}  // namespace

absl::Status ExecuteReference(const Plan& plan,
                              absl::Span<const TensorView> sources,
                              absl::Span<const TensorView> targets) {
  TESSERA_RETURN_IF_ERROR(CheckViews("source", plan.source(), sources));
  TESSERA_RETURN_IF_ERROR(CheckViews("target", plan.target(), targets));
  Pieces pieces = MakePieces(plan.source());
  for (size_t i = 0; i < sources.size(); ++i) {
    CopyElements(pieces[i].As(sources[i].meta()), sources[i]);
  }
  const Layout* at = &plan.source();
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    absl::StatusOr<Pieces> after = RunStep(*at, plan.steps()[i], pieces);
    if (!after.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "reference: step ", i + 1, ": ", after.status().message()));
    }
    pieces = *std::move(after);
    at = &plan.steps()[i].after;
  }
  if (!HoldsTheSame(*at, plan.target())) {
    return absl::InvalidArgumentError(absl::StrCat("reference: ranks end with ",
                                                   at->ToString(), ", want ",
                                                   plan.target().ToString()));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    CopyElements(targets[i], pieces[i].As(targets[i].meta()));
  }
  return absl::OkStatus();
}

}  // namespace tessera::testing
