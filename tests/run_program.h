#ifndef TESSERA_TESTS_RUN_PROGRAM_H_
#define TESSERA_TESTS_RUN_PROGRAM_H_

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace tessera::testing {

struct ProgramResult {
  int exit_status = -1;  // -1 where the program did not exit by itself
  std::string output;
};

// Runs a command line through the shell and keeps what it prints to stdout;
// redirect stderr in the command line as needed.
inline ProgramResult RunProgram(const std::string& command) {
  ProgramResult result;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> chunk;
  while (size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    result.output.append(chunk.data(), n);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  return result;
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_RUN_PROGRAM_H_
