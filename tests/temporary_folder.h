#ifndef TESSERA_TESTS_TEMPORARY_FOLDER_H_
#define TESSERA_TESTS_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace tessera::testing {

// A folder that no other test has, not even the same one in another process at
// the same time. It goes with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "/tessera_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_TEMPORARY_FOLDER_H_
