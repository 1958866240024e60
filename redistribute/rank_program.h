#ifndef TESSERA_REDISTRIBUTE_RANK_PROGRAM_H_
#define TESSERA_REDISTRIBUTE_RANK_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/stream.h"
#include "tessera/placement/region.h"
#include "tessera/redistribute/exchange.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/storage.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/tensor_meta.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::internal {

// What one rank does in a plan, worked out once: which pieces it keeps, with
// whom it communicates, where in the workspace a value lies. Running it needs
// memory only, and makes nothing new.
//
//   program.Begin(source, target, workspace);
//   for (int i = 0; i < program.num_steps(); ++i) {
//     RETURN_IF_ERROR(program.RunLocally(i));
//     if (program.group(i)) RETURN_IF_ERROR(group->Issue(program.call(i)));
//   }
//   RETURN_IF_ERROR(program.Finish());
//
// One run at a time. LIFETIME: the stream and what `comms` gives outlive it;
// the plan need not.
class RankProgram {
 public:
  // Makes the groups of the steps that this rank takes, in their order.
  // COLLECTIVE over the ranks of the plan's meshes.
  // ERRORS: Unimplemented for a slice, fill or scale over several mesh axes;
  // those of CommSet.
  static absl::StatusOr<RankProgram> Create(const Plan& plan, CommSet& comms,
                                            Stream& stream);

  // Bytes that a run needs: at most plan.workspace_bytes().
  int64_t workspace_bytes() const { return workspace_bytes_; }
  int num_steps() const { return static_cast<int>(steps_.size()); }

  // ERRORS: InvalidArgument for views that are not of the metas that the
  // layouts of the plan say, where this rank is in their meshes.
  // REQUIRES: the program's plan.
  absl::Status CheckViews(const Plan& plan, const TensorView& source,
                          const TensorView& target) const;

  // Starts a run. REQUIRES: views that CheckViews likes, memory of at least
  // workspace_bytes() that fits the dtype's alignment.
  void Begin(const TensorView& source, const TensorView& target,
             void* workspace);
  // Enqueues all of step i but its communication. REQUIRES: the communication
  // of all steps before it has been enqueued.
  absl::Status RunLocally(int i);
  // The communication of step i, once it has run locally: its call on its
  // group, or null where there is none.
  Communicator* group(int i) const { return steps_[i].group; }
  const Collective& call(int i) const { return steps_[i].call; }
  // Behind the last step.
  absl::Status Finish();
  // For a run that has begun and does not come to its end: peers shall not wait
  // for this rank, so its groups are aborted, and the stream shall not pass for
  // good, so it fails. Returns the error.
  absl::Status Fail(const absl::Status& error);

 private:
  // A message as its group knows it.
  struct Message {
    int peer;
    Box box;
  };
  using Transfers = std::vector<Transfer>;
  struct PreparedStep {
    StepKind kind = StepKind::kRelabel;
    Storage storage = Storage::kSource;
    TensorMeta after;    // what this rank holds then
    int64_t offset = 0;  // in the workspace, of a new buffer

    // Slice, fill, scale.
    int dim = 0;
    Interval own;            // this rank's piece of `dim`
    bool was_shard = false;  // fill
    bool keeps = false;      // fill: the value, not the identity
    double factor = 1;       // scale; the identity of a fill

    // What communicates. The views of the call are filled in in every run.
    Communicator* group = nullptr;
    Collective call;

    // Exchange.
    Region had;
    Region has;
    std::vector<Box> kept;
    std::vector<Message> sends;
    std::vector<Message> receives;
    Transfers send_views;  // what the call borrows
    Transfers receive_views;
  };

  RankProgram(const Plan& plan, int rank, Stream& stream);

  static PreparedStep Prepare(const Step& step, Storage storage, int rank);
  static absl::Status AddCommunication(const Step& step, CommSet& comms,
                                       Stream& stream, PreparedStep& prepared);
  // Gives every new buffer its place.
  void PlaceBuffers();

  TensorView OutOf(const PreparedStep& step) const;
  absl::Status Write(PreparedStep& step, const TensorView& out);
  absl::Status Fill(const PreparedStep& step, const TensorView& out);
  absl::Status StartExchange(PreparedStep& step, const TensorView& out);
  // The parts of `local`, which is the piece of `region`.
  static void ViewParts(absl::Span<const Message> messages,
                        const TensorView& local, const Region& region,
                        Transfers& views);
  absl::Status Copy(const TensorView& out, const TensorView& in);

  int rank_;
  Stream* stream_;
  TensorMeta source_meta_;
  TensorMeta target_meta_;
  std::vector<PreparedStep> steps_;
  bool copies_at_the_end_ = false;
  int64_t workspace_bytes_ = 0;

  // Of the run.
  TensorView target_;
  std::byte* workspace_ = nullptr;
  TensorView value_;  // where the value lies between two steps
};

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_RANK_PROGRAM_H_
