#include "tessera/redistribute/verify.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/exchange.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera {
namespace {

// The axes that shard `dim` in `layout` and are not among `others`, in cutting
// order.
MeshCoords ShardAxesWithout(const Layout& layout, int dim,
                            absl::Span<const int> others) {
  MeshCoords axes;
  for (int axis : layout.ShardAxes(dim)) {
    if (!absl::c_linear_search(others, axis)) axes.push_back(axis);
  }
  return axes;
}

// The axes that shard `dim` in either layout, in mesh-axis order.
MeshCoords ShardAxesOfEither(const Layout& a, const Layout& b, int dim) {
  MeshCoords axes = a.ShardAxes(dim);
  for (int axis : ShardAxesWithout(b, dim, axes)) axes.push_back(axis);
  absl::c_sort(axes);
  return axes;
}

// "(dp=1,tp=0)", of `axes` alone.
std::string FormatCoords(const DeviceMesh& mesh, absl::Span<const int> axes,
                         const MeshCoords& coords) {
  const auto format = [&](std::string* out, int axis) {
    absl::StrAppend(out, mesh.axis(axis).name, "=", coords[axis]);
  };
  return absl::StrCat("(", absl::StrJoin(axes, ",", format), ")");
}

std::string FormatChange(const Placement& from, const Placement& to) {
  return absl::StrCat(from.ToString(), " -> ", to.ToString());
}

// Calls `visit` with all coordinates along `axes`, the last of them fastest,
// and 0 along the others.
void ForEachCoords(const DeviceMesh& mesh, absl::Span<const int> axes,
                   absl::FunctionRef<void(const MeshCoords&)> visit) {
  MeshCoords coords(mesh.num_axes(), 0);
  auto axis = axes.rbegin();
  do {
    visit(coords);
    for (axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      if (++coords[*axis] < mesh.axis(*axis).size) break;
      coords[*axis] = 0;
    }
  } while (axis != axes.rend());
}

// The piece of `whole` at `coords` once `axes` have cut it one after the other
// by the shard rule. As in a Region, an empty one begins at `extent`.
Interval PieceOf(Interval whole, int64_t extent, const DeviceMesh& mesh,
                 absl::Span<const int> axes, const MeshCoords& coords) {
  for (int axis : axes) {
    const Interval piece =
        CeilSplit(whole.size(), mesh.axis(axis).size, coords[axis]);
    whole = {whole.begin + piece.begin, whole.begin + piece.end};
  }
  return whole.empty() ? Interval{extent, extent} : whole;
}

// The changes along an axis that steps of a kind are for.
absl::string_view ChangesOf(StepKind kind) {
  switch (kind) {
    case StepKind::kRelabel:
      return "no change of what is Partial";
    case StepKind::kSlice:
      return "R -> S(d)";
    case StepKind::kFill:
      return "R -> P(op) or S(d) -> P(sum)";
    case StepKind::kScale:
      return "P(sum) -> P(avg) or P(avg) -> P(sum)";
    case StepKind::kAllGather:
      return "S(d) -> R";
    case StepKind::kReduceScatter:
      return "P(op) -> S(d)";
    case StepKind::kAllReduce:
      return "P(op) -> R";
    case StepKind::kAllToAll:
      return "S(d) -> S(e) with d != e";
    case StepKind::kExchange:
      return "nothing Partial before and after";
  }
  return "a known kind of step";
}

// True if `from` -> `to`, along an axis of size above 1, is one of them.
bool MakesChangeOf(StepKind kind, const Placement& from, const Placement& to) {
  switch (kind) {
    case StepKind::kRelabel:
      return from == to || (!from.is_partial() && !to.is_partial());
    case StepKind::kSlice:
      return from.is_replicate() && to.is_shard();
    case StepKind::kFill:
      return (from.is_replicate() && to.is_partial()) ||
             (from.is_shard() && to == Placement::Partial(ReduceOp::kSum));
    case StepKind::kScale:
      return from.is_partial() && to.is_partial() && from != to &&
             IsLinear(from.op()) && IsLinear(to.op());
    case StepKind::kAllGather:
      return from.is_shard() && to.is_replicate();
    case StepKind::kReduceScatter:
      return from.is_partial() && to.is_shard();
    case StepKind::kAllReduce:
      return from.is_partial() && to.is_replicate();
    case StepKind::kAllToAll:
      return from.is_shard() && to.is_shard() && from != to;
    case StepKind::kExchange:
      return !from.is_partial() && !to.is_partial();
  }
  return false;
}

// The proof that one step makes `after` of `before`.
class StepProof {
 public:
  StepProof(int number, const Step& step)
      : number_(number),
        step_(step),
        before_(step.before),
        after_(step.after),
        mesh_(step.before.mesh()) {}

  absl::Status Run() const {
    TESSERA_RETURN_IF_ERROR(CheckTensor());
    TESSERA_RETURN_IF_ERROR(CheckNamedAxes());
    if (IsExchange()) return RunExchange();
    TESSERA_RETURN_IF_ERROR(CheckOtherAxes());
    TESSERA_RETURN_IF_ERROR(CheckChanges());
    TESSERA_RETURN_IF_ERROR(CheckRaggedCuts());
    TESSERA_RETURN_IF_ERROR(CheckRegions());
    return CheckFigures();
  }

 private:
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(
        absl::StrCat("verify: step ", number_, ", ", StepKindName(step_.kind),
                     ": ", parts...));
  }

  bool IsRelabel() const { return step_.kind == StepKind::kRelabel; }
  bool IsExchange() const { return step_.kind == StepKind::kExchange; }
  bool Names(int axis) const { return absl::c_linear_search(step_.axes, axis); }
  // True if a named axis shards `dim` in `layout`.
  bool NamedAxisShards(const Layout& layout, int dim) const {
    return absl::c_any_of(step_.axes, [&](int axis) {
      return layout.placement(axis).is_shard(dim);
    });
  }

  absl::Status CheckTensor() const {
    const bool is_one_mesh = mesh_ == after_.mesh();
    if (before_.meta() == after_.meta() && (is_one_mesh || IsExchange())) {
      return absl::OkStatus();
    }
    return Error("want one tensor", IsExchange() ? "" : " on one mesh",
                 ", found ", before_.ToString(), " on '", mesh_.ToString(),
                 "' and ", after_.ToString(), " on '", after_.mesh().ToString(),
                 "'");
  }

  absl::Status CheckNamedAxes() const {
    if (step_.axes.empty() && !IsExchange()) {
      return Error("want at least one axis, found none");
    }
    for (size_t i = 0; i < step_.axes.size(); ++i) {
      const int axis = step_.axes[i];
      if (axis < 0 || axis >= mesh_.num_axes()) {
        return Error("want axes of mesh '", mesh_.ToString(), "', found axis ",
                     axis);
      }
      if (absl::c_linear_search(absl::MakeSpan(step_.axes).first(i), axis)) {
        return Error("want every axis once, found '", mesh_.axis(axis).name,
                     "' twice");
      }
      if (Communicates(step_.kind) && mesh_.axis(axis).size == 1) {
        return Error("want communication along axes of size above 1, found '",
                     mesh_.axis(axis).name, "' of size 1");
      }
    }
    return absl::OkStatus();
  }

  // The messages make everything of `before`: only who takes part, and how
  // much they get, may be wrong.
  absl::Status RunExchange() const {
    for (const Layout* layout : {&before_, &after_}) {
      if (!layout->HasPartial()) continue;
      return Error("want ", ChangesOf(step_.kind), ", found ",
                   layout->PlacementsToString());
    }
    MeshCoords named(step_.axes.begin(), step_.axes.end());
    absl::c_sort(named);
    const MeshCoords wanted = internal::ExchangeAxes(before_, after_);
    if (named != wanted) {
      return Error("want all axes along which elements may move, ",
                   FormatAxes(wanted), ", found ", FormatAxes(named));
    }
    return CheckExchangeFigures();
  }

  absl::Status CheckExchangeFigures() const {
    constexpr int kMostRanks = 4096;
    if (std::max(mesh_.size(), after_.mesh().size()) > kMostRanks) {
      return absl::OkStatus();
    }
    const internal::ReceivedMost most = internal::MostReceived(before_, after_);
    const int64_t bytes = SaturatingMul(most.elements, SizeOf(before_.dtype()));
    if (step_.bytes_received < bytes) {
      return Error("want at least ", bytes, " bytes received, found ",
                   step_.bytes_received);
    }
    if (step_.messages < most.cells) {
      return Error("want at least ", most.cells, " messages, found ",
                   step_.messages);
    }
    return absl::OkStatus();
  }

  // "(dp,tp)"
  std::string FormatAxes(absl::Span<const int> axes) const {
    const auto format = [&](std::string* out, int axis) {
      absl::StrAppend(out, mesh_.axis(axis).name);
    };
    return absl::StrCat("(", absl::StrJoin(axes, ",", format), ")");
  }

  absl::Status CheckOtherAxes() const {
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      const Placement& from = before_.placement(axis);
      const Placement& to = after_.placement(axis);
      if (Names(axis) || from == to) continue;
      return Error("want no change along axis '", mesh_.axis(axis).name,
                   "', which the step does not name, found ",
                   FormatChange(from, to));
    }
    for (int dim = 0; dim < before_.shape().num_dims(); ++dim) {
      if (ShardAxesWithout(before_, dim, step_.axes) ==
          ShardAxesWithout(after_, dim, step_.axes)) {
        continue;
      }
      return Error("want dim ", dim,
                   " cut in the same order by the axes that the step does not "
                   "name, found ",
                   before_.PlacementsToString(), " -> ",
                   after_.PlacementsToString());
    }
    return absl::OkStatus();
  }

  absl::Status CheckChanges() const {
    const int first = step_.axes.front();
    for (int axis : step_.axes) {
      const Placement& from = before_.placement(axis);
      const Placement& to = after_.placement(axis);
      const bool any_will_do = IsRelabel() && mesh_.axis(axis).size == 1;
      if (!any_will_do && !MakesChangeOf(step_.kind, from, to)) {
        return Error("want ", ChangesOf(step_.kind), " along axis '",
                     mesh_.axis(axis).name, "', found ",
                     FormatChange(from, to));
      }
      const bool same_as_first =
          from == before_.placement(first) && to == after_.placement(first);
      if (!IsRelabel() && !same_as_first) {
        return Error(
            "want the same change along all axes, found ",
            FormatChange(before_.placement(first), after_.placement(first)),
            " along '", mesh_.axis(first).name, "' and ",
            FormatChange(from, to), " along '", mesh_.axis(axis).name, "'");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckRaggedCuts() const {
    for (int axis : step_.axes) {
      const Placement& from = before_.placement(axis);
      const Placement& to = after_.placement(axis);
      if (from == to || (!from.is_ragged() && !to.is_ragged())) continue;
      return Error("want ragged cuts to stay, found ", FormatChange(from, to),
                   " along axis '", mesh_.axis(axis).name, "'");
    }
    if (IsRelabel() || before_.RaggedAxes().empty()) return absl::OkStatus();
    for (int dim = 0; dim < before_.shape().num_dims(); ++dim) {
      if (!NamedAxisShards(before_, dim) && !NamedAxisShards(after_, dim)) {
        continue;
      }
      return Error("want no elements moved beside a ragged cut, found dim ",
                   dim, " cut otherwise in ", after_.PlacementsToString(),
                   " than in ", before_.PlacementsToString());
    }
    return absl::OkStatus();
  }

  absl::Status CheckRegions() const {
    for (int dim = 0; dim < before_.shape().num_dims(); ++dim) {
      const bool was_sharded = NamedAxisShards(before_, dim);
      // Else the same axes cut the dim in the same order.
      if (!was_sharded && !NamedAxisShards(after_, dim)) continue;
      if (IsRelabel()) {
        TESSERA_RETURN_IF_ERROR(CheckPieces(dim, before_, after_, {}));
      } else {
        TESSERA_RETURN_IF_ERROR(
            was_sharded ? CheckPieces(dim, after_, before_, step_.axes)
                        : CheckPieces(dim, before_, after_, step_.axes));
      }
    }
    return absl::OkStatus();
  }

  // Everywhere, `cut_axes` cut what `whole` says of `dim` into what `parts`
  // says.
  absl::Status CheckPieces(int dim, const Layout& whole, const Layout& parts,
                           absl::Span<const int> cut_axes) const {
    const MeshCoords axes = ShardAxesOfEither(whole, parts, dim);
    const int64_t extent = whole.shape().extent(dim);
    absl::Status status;
    ForEachCoords(mesh_, axes, [&](const MeshCoords& coords) {
      if (!status.ok()) return;
      const Interval found = parts.RegionAt(coords).box[dim];
      const Interval wanted = PieceOf(whole.RegionAt(coords).box[dim], extent,
                                      mesh_, cut_axes, coords);
      if (found == wanted) return;
      status = Error("at ", FormatCoords(mesh_, axes, coords), " dim ", dim,
                     " in ", parts.PlacementsToString(), ": want ",
                     wanted.ToString(), " for ", whole.PlacementsToString(),
                     ", found ", found.ToString());
    });
    return status;
  }

  absl::Status CheckFigures() const {
    const int64_t bytes =
        SaturatingMul(ElementsReceived(), SizeOf(before_.dtype()));
    if (step_.bytes_received != bytes) {
      return Error("want ", bytes, " bytes received, found ",
                   step_.bytes_received);
    }
    const int64_t messages =
        Communicates(step_.kind) ? step_.group_size() - 1 : 0;
    if (step_.messages != messages) {
      return Error("want ", messages, " messages, found ", step_.messages);
    }
    return absl::OkStatus();
  }

  // The most elements that a rank receives from others.
  int64_t ElementsReceived() const {
    switch (step_.kind) {
      case StepKind::kAllReduce: {
        // Others' addends to one's own piece, then everybody else's piece; the
        // first member has the largest.
        const int64_t all = before_.MostElements();
        const int64_t own = CeilSplit(all, step_.group_size(), 0).size();
        return SaturatingAdd(SaturatingMul(own, step_.group_size() - 1),
                             all - own);
      }
      case StepKind::kReduceScatter:
        return SaturatingMul(after_.MostElements(), step_.group_size() - 1);
      case StepKind::kAllGather:
      case StepKind::kAllToAll:
        return MostJoined();
      case StepKind::kExchange:
      case StepKind::kRelabel:
      case StepKind::kSlice:
      case StepKind::kFill:
      case StepKind::kScale:
        return 0;
    }
    return 0;
  }

  // Of what pieces are joined to along a dim, the most that a rank did not
  // have.
  int64_t MostJoined() const {
    const Region largest = after_.LargestRegion();
    std::vector<int64_t> elements(step_.group_size(),
                                  1);  // per member of a group
    for (int dim = 0; dim < before_.shape().num_dims(); ++dim) {
      const std::vector<int64_t> most = MostPerMember(dim);
      for (size_t i = 0; i < elements.size(); ++i) {
        elements[i] *= most.empty() ? largest.box[dim].size() : most[i];
      }
    }
    return *absl::c_max_element(elements);
  }

  // Per member of a group the most, over all groups, that it receives in
  // `dim`: where pieces are joined, what it did not have, else what it gets to
  // have. Empty where members do not differ.
  std::vector<int64_t> MostPerMember(int dim) const {
    const bool is_joined = NamedAxisShards(before_, dim);
    if (!is_joined && !NamedAxisShards(after_, dim)) return {};
    std::vector<int64_t> most(step_.group_size(), 0);
    ForEachCoords(mesh_, ShardAxesOfEither(before_, after_, dim),
                  [&](const MeshCoords& coords) {
                    int64_t size = after_.RegionAt(coords).box[dim].size();
                    if (is_joined)
                      size -= before_.RegionAt(coords).box[dim].size();
                    int64_t& of_member = most[MemberAt(coords)];
                    of_member = std::max(of_member, size);
                  });
    return most;
  }

  // The place of a rank in its group of those that the named axes form.
  int64_t MemberAt(const MeshCoords& coords) const {
    int64_t member = 0;
    for (int axis : step_.axes) {
      member = member * mesh_.axis(axis).size + coords[axis];
    }
    return member;
  }

  const int number_;
  const Step& step_;
  const Layout& before_;
  const Layout& after_;
  const DeviceMesh& mesh_;
};

}  // namespace

absl::Status Verify(const Plan& plan) {
  const Layout* at = &plan.source();
  int number = 0;
  for (const Step& step : plan.steps()) {
    ++number;
    if (step.before != *at) {
      return absl::InvalidArgumentError(absl::StrCat(
          "verify: step ", number, ", ", StepKindName(step.kind),
          ": want it to begin at ", at->ToString(), " on '",
          at->mesh().ToString(), "', found ", step.before.ToString(), " on '",
          step.before.mesh().ToString(), "'"));
    }
    TESSERA_RETURN_IF_ERROR(StepProof(number, step).Run());
    at = &step.after;
  }
  if (*at == plan.target()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("verify: want the ", number, " steps to end at the target ",
                   plan.target().ToString(), ", found ", at->ToString()));
}

}  // namespace tessera
