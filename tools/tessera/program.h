#ifndef TESSERA_TOOLS_TESSERA_PROGRAM_H_
#define TESSERA_TOOLS_TESSERA_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"

namespace tessera::tools {

// What a command prints to stdout, and how the program exits.
struct Outcome {
  std::string text;
  int exit_status = 0;
};

// The program `tessera` but for printing: runs the command that the command
// line names. ERRORS: any, in one line that begins with the program and the
// command, for what cannot be used: the program exits with 2.
absl::StatusOr<Outcome> RunTool(int argc, const char* const* argv);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_PROGRAM_H_
