#ifndef TESSERA_FSDP_AGREEMENT_H_
#define TESSERA_FSDP_AGREEMENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/comm/communicator.h"

namespace tessera::internal {

// OK where all ranks of `group` give the same text, of one entry per line.
// Blocks the host. COLLECTIVE over the group.
// ERRORS: FailedPrecondition, on every rank, with the first entry that differs
// behind `complaint`: "fsdp: ranks register different parameters: entry 2 is
// parameter 'a.w' on rank 0 and nothing on rank 3"; those of HostAllGather.
absl::Status CompareEntries(Communicator& group, absl::string_view complaint,
                            absl::string_view text);

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_AGREEMENT_H_
