#ifndef TESSERA_COMM_LOCAL_CALL_PROGRAM_H_
#define TESSERA_COMM_LOCAL_CALL_PROGRAM_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tessera::internal {

// What `program` returns; Internal for what it throws, for no exception may
// cross the thread of a rank.
absl::Status CallProgram(absl::FunctionRef<absl::Status()> program);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_LOCAL_CALL_PROGRAM_H_
