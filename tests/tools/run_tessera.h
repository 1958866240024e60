#ifndef TESSERA_TESTS_TOOLS_RUN_TESSERA_H_
#define TESSERA_TESTS_TOOLS_RUN_TESSERA_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/run_program.h"

namespace tessera::testing {

// Runs the program with these arguments, as a shell reads them; keeps both
// stdout and stderr.
inline ProgramResult RunTessera(const std::string& arguments) {
  return RunProgram("'" TESSERA_PROGRAM "' " + arguments + " 2>&1");
}

// A folder that goes with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "/tessera_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_TOOLS_RUN_TESSERA_H_
