#include "tessera/comm/nccl/nccl_status.h"

#include "absl/strings/str_cat.h"

namespace tessera::internal {

absl::Status NcclStatus(absl::string_view function, ncclResult_t result,
                        ncclComm_t comm) {
  if (result == ncclSuccess) return absl::OkStatus();
  const char* const last = ncclGetLastError(comm);
  const bool says_more = last != nullptr && *last != '\0';
  return absl::InternalError(
      absl::StrCat("comm: ", function, ": ", ncclGetErrorString(result),
                   says_more ? ": " : "", says_more ? last : ""));
}

}  // namespace tessera::internal
