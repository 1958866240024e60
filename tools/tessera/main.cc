// Plans, shows and checks redistributions: see program.cc for the commands.
//
// Exit status: 0, 1 where `check` finds a change, 2 for a command line or file
// that cannot be used or an output that cannot be written.

#include <cstdio>

#include "absl/status/statusor.h"
#include "tools/tessera/program.h"

namespace {

constexpr int kUnusable = 2;

int Complain(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  return kUnusable;
}

}  // namespace

int main(int argc, char** argv) {
  const absl::StatusOr<tessera::tools::Outcome> outcome =
      tessera::tools::RunTool(argc, argv);
  if (!outcome.ok()) return Complain(std::string(outcome.status().message()));
  std::fputs(outcome->text.c_str(), stdout);
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) {
    return outcome->exit_status;
  }
  return Complain("tessera: cannot write to stdout");
}
