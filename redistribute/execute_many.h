#ifndef TESSERA_REDISTRIBUTE_EXECUTE_MANY_H_
#define TESSERA_REDISTRIBUTE_EXECUTE_MANY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/stream.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/plan_many.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// Plans of many tensors that this rank is ready to execute, any number of
// times: the steps of a stage go out as one launch. Else as PreparedPlan.
//
//   TESSERA_ASSIGN_OR_RETURN(ManyPlan plan, PlanMany(weights, topology));
//   TESSERA_ASSIGN_OR_RETURN(
//       PreparedManyPlan gather,
//       Prepare(std::make_shared<const ManyPlan>(plan), comms, stream));
//   gather.Execute(shards, whole, {memory, gather.workspace_bytes()});
class PreparedManyPlan {
 public:
  PreparedManyPlan(PreparedManyPlan&&) noexcept;
  PreparedManyPlan& operator=(PreparedManyPlan&&) noexcept;
  ~PreparedManyPlan();

  const std::shared_ptr<const ManyPlan>& plan() const { return plan_; }
  Stream& stream() const { return *stream_; }

  // What this rank needs: at most plan()->workspace_bytes().
  int64_t workspace_bytes() const;

  // Enqueues all plans on the stream: one source and one target per plan, none
  // of which overlaps another. COLLECTIVE over the ranks of all plans' meshes.
  // LIFETIME, ERRORS: as PreparedPlan::Execute; InvalidArgument also for
  // another number of views than of plans.
  absl::Status Execute(absl::Span<const TensorView> sources,
                       absl::Span<const TensorView> targets,
                       Workspace workspace = {});

 private:
  friend absl::StatusOr<PreparedManyPlan> Prepare(
      std::shared_ptr<const ManyPlan>, CommSet&, Stream&);
  PreparedManyPlan(std::shared_ptr<const ManyPlan> plan, int rank,
                   Stream& stream);

  absl::Status CheckViews(absl::Span<const TensorView> sources,
                          absl::Span<const TensorView> targets) const;
  // Of a run that has begun.
  absl::Status RunAllStages();
  absl::Status RunStage(const Stage& stage);
  // Runs steps of a plan up to `end`, none of which communicates.
  absl::Status RunLocallyTo(int plan, int end);

  std::shared_ptr<const ManyPlan> plan_;
  int rank_;
  Stream* stream_;
  // One per plan.
  std::vector<internal::RankProgram> programs_;
  std::vector<int64_t> offsets_;   // in the workspace
  std::vector<int> next_steps_;    // of the run
  std::vector<Collective> calls_;  // of a stage
};

// As Prepare of one plan; all of them are compared at once.
// REQUIRES: Verify of every plan is OK.
// COLLECTIVE over the ranks of all plans' meshes.
absl::StatusOr<PreparedManyPlan> Prepare(std::shared_ptr<const ManyPlan> plan,
                                         CommSet& comms, Stream& stream);

// Prepare and PreparedManyPlan::Execute in one, as Execute of one plan.
absl::Status ExecuteMany(const ManyPlan& plan,
                         absl::Span<const TensorView> sources,
                         absl::Span<const TensorView> targets, CommSet& comms,
                         Stream& stream);

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_EXECUTE_MANY_H_
