// Measures redistributions: see bench_command.cc for the flags.
//
// Exit status: 0, or 2 for a command line that cannot be used, ranks that
// failed, or an output that cannot be written.

#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "tools/tessera-bench/bench_command.h"

namespace {

int Complain(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const absl::StatusOr<std::string> text = tessera::tools::RunBench(argc, argv);
  if (!text.ok()) return Complain(std::string(text.status().message()));
  std::fputs(text->c_str(), stdout);
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return 0;
  return Complain("tessera-bench: cannot write to stdout");
}
