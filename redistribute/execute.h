#ifndef TESSERA_REDISTRIBUTE_EXECUTE_H_
#define TESSERA_REDISTRIBUTE_EXECUTE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/stream.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/workspace.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {
namespace internal {
class RankProgram;
}

// A plan that this rank is ready to execute, any number of times: the ranks
// have compared it, the groups of its steps are there, and what this rank keeps
// and sends is worked out. Move-only; one call at a time.
// LIFETIME: the communicators and the stream outlive it.
class PreparedPlan {
 public:
  PreparedPlan(PreparedPlan&&) noexcept;
  PreparedPlan& operator=(PreparedPlan&&) noexcept;
  ~PreparedPlan();

  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  Stream& stream() const { return *stream_; }

  // What this rank needs: at most plan()->workspace_bytes().
  int64_t workspace_bytes() const;

  // Enqueues the plan on the stream: reads this rank's piece of the source,
  // writes its piece of the target. `source` and `target` are this rank's local
  // views, of the metas that the layouts say (Layout::LocalMeta), any strides;
  // they do not overlap. `source` is not written. Allocates nothing, as long as
  // tensors have at most four dims.
  //
  // COLLECTIVE over the plan's mesh: all of its ranks execute equal plans in
  // the same order. Where an exchange leads from one mesh to another, over the
  // ranks of both; a rank of one of them takes its steps alone, and the view of
  // a layout on a mesh without the rank is not looked at. A rank outside has
  // nothing to do, may call with empty views, and is not waited for. After an
  // error of Communicator or Stream the target's content is undefined, the
  // error stays in the stream, and the groups of the plan's steps are aborted,
  // so that peers learn of it at once.
  //
  // ERRORS: InvalidArgument where a view's meta is not the layout's, naming
  // both, or where the workspace is smaller than workspace_bytes(), with
  // nothing enqueued; those of Communicator and Stream.
  absl::Status Execute(const TensorView& source, const TensorView& target,
                       Workspace workspace = {});

 private:
  friend absl::StatusOr<PreparedPlan> Prepare(std::shared_ptr<const Plan>,
                                              CommSet&, Stream&);
  PreparedPlan(std::shared_ptr<const Plan> plan, int rank, Stream& stream,
               std::unique_ptr<internal::RankProgram> program);

  // Of a run that has begun.
  absl::Status RunAllSteps();

  std::shared_ptr<const Plan> plan_;
  int rank_;
  Stream* stream_;
  std::unique_ptr<internal::RankProgram> program_;
};

// The ranks compare the plan, by its fingerprint, and make the groups of its
// steps on `stream`. Each plan is compared once per CommSet, and not at all if
// it does not communicate.
//
// REQUIRES: Verify(*plan) is OK, as it is for what MakePlan makes.
// COLLECTIVE over the ranks of the plan's meshes; blocks the host.
// ERRORS: FailedPrecondition, on every rank, where plans differ, naming all of
// them; Unimplemented for a slice, fill or scale over several mesh axes, which
// MakePlan makes none of; those of CommSet.
absl::StatusOr<PreparedPlan> Prepare(std::shared_ptr<const Plan> plan,
                                     CommSet& comms, Stream& stream);

// Prepare and PreparedPlan::Execute in one, for a plan that is executed once:
// see these. What the plan needs beside source and target is allocated on the
// stream's device under the tag "workspace", and freed in stream order.
// ERRORS: also ResourceExhausted.
absl::Status Execute(const Plan& plan, const TensorView& source,
                     const TensorView& target, CommSet& comms, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_EXECUTE_H_
