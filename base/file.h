#ifndef TESSERA_BASE_FILE_H_
#define TESSERA_BASE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::internal {

// What is in the file. ERRORS: NotFound, with the path and the system's
// reason, where it cannot be read.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Makes the file hold `text` and nothing else. ERRORS: PermissionDenied, with
// the path and the system's reason, where it cannot be written.
absl::Status WriteFile(const std::string& path, absl::string_view text);

}  // namespace tessera::internal

#endif  // TESSERA_BASE_FILE_H_
