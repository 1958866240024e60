#ifndef TESSERA_REDISTRIBUTE_STORAGE_H_
#define TESSERA_REDISTRIBUTE_STORAGE_H_

#include <vector>

#include "absl/types/span.h"
#include "tessera/redistribute/plan.h"

namespace tessera::internal {

// Where the value lies once a step of a plan is done.
enum class Storage {
  kSource,     // a view of the source
  kWorkspace,  // in the workspace buffer that it was in
  kNewBuffer,  // in a new workspace buffer; what was in one is dropped
  kTarget,     // in the target; what was in a workspace buffer is dropped
};

// One per step. A relabelling leaves the value where it is, and a slice of the
// source is a view of it. Other steps read the source but do not write it;
// those after which every rank holds the same elements as before work in
// place elsewhere. The last step that changes what ranks hold writes to the
// target, and so do all behind it. The executor and Plan::workspace_bytes go
// by this.
std::vector<Storage> StorageOfSteps(absl::Span<const Step> steps);

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_STORAGE_H_
