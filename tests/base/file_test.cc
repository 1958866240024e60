#include "tessera/base/file.h"

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::tessera::testing::TemporaryFolder;

TEST(FileTest, HoldsWhatWasWrittenLast) {
  const TemporaryFolder folder;
  const std::string path = folder.File("text");
  for (const std::string& text :
       {std::string(10'000, 'x'), std::string("a\0\r\n\xff", 5),
        std::string()}) {
    EXPECT_OK(WriteFile(path, text));
    EXPECT_THAT(ReadFile(path), IsOkAndHolds(text));
  }
  std::remove(path.c_str());
  EXPECT_THAT(ReadFile(path),
              StatusIs(absl::StatusCode::kNotFound,
                       path + ": want a file to read, found: No such file or "
                              "directory"));
}

TEST(FileTest, NamesWhatCannotBeUsed) {
  EXPECT_THAT(ReadFile("/"),
              StatusIs(absl::StatusCode::kNotFound,
                       "/: want a file to read, found: Is a directory"));
  EXPECT_THAT(WriteFile("/", "x"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       "/: want a file to write, found: Is a directory"));
  EXPECT_THAT(WriteFile("/dev/full", "x"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       "/dev/full: want a file to write, found: No space left "
                       "on device"));
}

}  // namespace
}  // namespace tessera::internal
