#ifndef TESSERA_REDISTRIBUTE_EXECUTE_H_
#define TESSERA_REDISTRIBUTE_EXECUTE_H_

#include "absl/status/status.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/stream.h"
#include "tessera/redistribute/plan.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// Enqueues `plan` on `stream`: reads this rank's piece of the source, writes
// its piece of the target. `source` and `target` are this rank's local views,
// of the metas that the layouts say (Layout::LocalMeta), any strides; they do
// not overlap. `source` is not written. What lies between is allocated on the
// stream's device under the tag "workspace", never more than
// plan.workspace_bytes() at a time, and freed in stream order.
//
// REQUIRES: Verify(plan) is OK, as it is for what MakePlan makes.
//
// COLLECTIVE over the plan's mesh: all of its ranks execute equal plans in the
// same order. Where an exchange leads from one mesh to another, over the ranks
// of both; a rank of one of them takes its steps alone, and the view of a
// layout on a mesh without the rank is not looked at. A rank outside has
// nothing to do, may call with empty views, and is not waited for. After an
// error the target's content is undefined and the error stays in the stream.
//
// ERRORS: Unimplemented for a slice, fill or scale over several mesh axes,
// which MakePlan makes none of; InvalidArgument where a view's meta is not the
// layout's, naming both; ResourceExhausted; those of Communicator and Stream.
absl::Status Execute(const Plan& plan, const TensorView& source,
                     const TensorView& target, CommSet& comms, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_EXECUTE_H_
