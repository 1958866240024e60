#ifndef TESSERA_REDISTRIBUTE_WORKSPACE_H_
#define TESSERA_REDISTRIBUTE_WORKSPACE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/device/stream.h"

namespace tessera {

// Memory for what lies between source and target: of the stream's device,
// aligned for the dtype, used by nothing else until the stream has come past.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

namespace internal {

// ERRORS: InvalidArgument for less than `wanted` bytes.
absl::Status CheckWorkspace(const Workspace& workspace, int64_t wanted,
                            int rank);

// What `use` gives for so many bytes of the stream's device, allocated under
// the tag and freed in stream order, whatever comes of it.
// ERRORS: also ResourceExhausted.
absl::Status WithWorkspace(int64_t bytes, Stream& stream,
                           absl::FunctionRef<absl::Status(Workspace)> use,
                           absl::string_view tag = "workspace");

}  // namespace internal
}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_WORKSPACE_H_
