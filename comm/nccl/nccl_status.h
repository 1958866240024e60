#ifndef TESSERA_COMM_NCCL_NCCL_STATUS_H_
#define TESSERA_COMM_NCCL_NCCL_STATUS_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::internal {

// OK for ncclSuccess; else Internal with NCCL's own text, and the last one that
// `comm` has, where it is not null:
// "comm: ncclGroupEnd: unhandled system error: Call to connect failed".
absl::Status NcclStatus(absl::string_view function, ncclResult_t result,
                        ncclComm_t comm = nullptr);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_NCCL_NCCL_STATUS_H_
