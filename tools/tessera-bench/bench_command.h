#ifndef TESSERA_TOOLS_TESSERA_BENCH_BENCH_COMMAND_H_
#define TESSERA_TOOLS_TESSERA_BENCH_BENCH_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"

namespace tessera::tools {

// The program `tessera-bench` but for printing: what a sweep found out, as the
// command line asks for it. ERRORS: any, in one line that begins with the
// program, for what cannot be used: the program exits with 2.
absl::StatusOr<std::string> RunBench(int argc, const char* const* argv);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_BENCH_BENCH_COMMAND_H_
