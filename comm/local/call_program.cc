#include "tessera/comm/local/call_program.h"

#include <exception>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

absl::Status CallProgram(absl::FunctionRef<absl::Status()> program) {
  try {
    return program();
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("the program threw: ", e.what()));
  } catch (...) {
    return absl::InternalError("the program threw");
  }
}

}  // namespace tessera::internal
