#include "tessera/redistribute/workspace.h"

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera::internal {

absl::Status CheckWorkspace(const Workspace& workspace, int64_t wanted,
                            int rank) {
  if (workspace.bytes >= wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("redistribute: on rank ", rank, " want a workspace of ",
                   wanted, " bytes, found ", workspace.bytes));
}

absl::Status WithWorkspace(int64_t bytes, Stream& stream,
                           absl::FunctionRef<absl::Status(Workspace)> use) {
  if (bytes == 0) return use({});
  TESSERA_ASSIGN_OR_RETURN(
      Buffer buffer, stream.device().Allocate(bytes, "workspace", &stream));
  const absl::Status result = use({buffer.data(), bytes});
  buffer.ResetAfter(stream);
  return result;
}

}  // namespace tessera::internal
