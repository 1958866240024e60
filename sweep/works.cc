#include "tessera/sweep/works.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tessera/base/status_macros.h"
#include "tessera/placement/region.h"
#include "tessera/redistribute/execute.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::internal {
namespace {

using Memory = std::vector<std::byte>;

// Whether the axes of a step cut its dim into equal pieces of the `whole`.
bool CutsEvenly(const Step& step, const Placement& shard, const Layout& whole) {
  const int64_t extent = whole.LargestRegion().box[shard.dim()].size();
  return extent % step.group_size() == 0;
}

// A cut over several axes is nested, and the pieces are those of one over the
// whole group only where they are equal.
bool HasBareForm(const Step& step) {
  if (step.kind == StepKind::kExchange) return false;
  if (!Communicates(step.kind) || step.axes.size() == 1) return true;
  const Placement& before = step.before.placement(step.axes.front());
  const Placement& after = step.after.placement(step.axes.front());
  return (!before.is_shard() || CutsEvenly(step, before, step.after)) &&
         (!after.is_shard() || CutsEvenly(step, after, step.before));
}

absl::Status Call(const Step& step, Communicator& comm, const TensorView& in,
                  const TensorView& out) {
  const Placement& before = step.before.placement(step.axes.front());
  const Placement& after = step.after.placement(step.axes.front());
  switch (step.kind) {
    case StepKind::kAllGather:
      return comm.AllGather(in, out, before.dim());
    case StepKind::kReduceScatter:
      return comm.ReduceScatter(before.op(), in, out, after.dim());
    case StepKind::kAllReduce:
      return comm.AllReduce(before.op(), in, out);
    case StepKind::kAllToAll:
      return comm.AllToAll(in, after.dim(), {}, out, before.dim(), {});
    default:
      return absl::InternalError("sweep: want a collective");
  }
}

// A rank's piece in memory that lives as long as it is held.
struct Piece {
  TensorView view;
  std::shared_ptr<Memory> memory;
};

Piece NewPiece(const Layout& layout, int rank) {
  const TensorMeta meta = layout.LocalMeta(rank);
  const auto memory = std::make_shared<Memory>(meta.num_bytes());
  return {TensorView(memory->data(), meta), memory};
}

// What a slice leaves of a piece, where it is.
Piece Sliced(Piece piece, const Step& slice, int rank) {
  const Region before = slice.before.RegionOf(rank);
  const Region after = slice.after.RegionOf(rank);
  for (size_t dim = 0; dim < after.box.size(); ++dim) {
    const int64_t begin = after.box[dim].begin - before.box[dim].begin;
    piece.view = piece.view.Slice(static_cast<int>(dim),
                                  {begin, begin + after.box[dim].size()});
  }
  return piece;
}

absl::StatusOr<Work> BareCollective(const Step& step, const Piece& in,
                                    const Piece& out, LocalRank& rank) {
  TESSERA_ASSIGN_OR_RETURN(
      Communicator * comm,
      rank.comms.Get(step.before.mesh(), step.axes, rank.stream));
  return [=, &rank] {
    TESSERA_RETURN_IF_ERROR(Call(step, *comm, in.view, out.view));
    return rank.stream.Synchronize();
  };
}

}  // namespace

absl::StatusOr<Work> RedistributionWork(std::shared_ptr<const Plan> plan,
                                        LocalRank& rank) {
  const TensorMeta source = plan->source().LocalMeta(rank.rank);
  const TensorMeta target = plan->target().LocalMeta(rank.rank);
  TESSERA_ASSIGN_OR_RETURN(PreparedPlan made,
                           Prepare(std::move(plan), rank.comms, rank.stream));
  const auto prepared = std::make_shared<PreparedPlan>(std::move(made));
  const auto from = std::make_shared<Memory>(source.num_bytes());
  const auto to = std::make_shared<Memory>(target.num_bytes());
  const auto workspace = std::make_shared<Memory>(prepared->workspace_bytes());
  return [=] {
    TESSERA_RETURN_IF_ERROR(prepared->Execute(
        TensorView(from->data(), source), TensorView(to->data(), target),
        {workspace->data(), static_cast<int64_t>(workspace->size())}));
    return prepared->stream().Synchronize();
  };
}

bool HasBareForm(const Plan& plan) {
  return plan.launches() > 0 &&
         std::all_of(plan.steps().begin(), plan.steps().end(),
                     [](const Step& step) { return HasBareForm(step); });
}

absl::StatusOr<std::vector<Work>> BareCollectives(const Plan& plan,
                                                  LocalRank& rank) {
  std::vector<Work> works;
  Piece piece = NewPiece(plan.source(), rank.rank);
  for (const Step& step : plan.steps()) {
    Piece next = step.kind == StepKind::kSlice
                     ? Sliced(piece, step, rank.rank)
                     : NewPiece(step.after, rank.rank);
    if (Communicates(step.kind)) {
      TESSERA_ASSIGN_OR_RETURN(Work work,
                               BareCollective(step, piece, next, rank));
      works.push_back(std::move(work));
    }
    piece = std::move(next);
  }
  return works;
}

}  // namespace tessera::internal
