// What docs/errors.md and docs/env_vars.md list is what the sources have.

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::filesystem::path& path) {
  return internal::ReadFile(path.string()).value();
}

std::string Page(absl::string_view name) {
  return Read(absl::StrCat(SOURCES, "/docs/", name));
}

// All C++ in these folders, with literals that follow each other joined.
std::string Sources(const std::vector<std::string>& folders) {
  std::string all;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             absl::StrCat(SOURCES, "/", folder))) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() == ".cc" || path.extension() == ".h") {
        all += Read(path);
      }
    }
  }
  static const std::regex kSeam("\"\\s*\n\\s*\"");
  return std::regex_replace(all, kSeam, "");
}

const std::vector<std::string>& LibraryFolders() {
  static const auto* const folders = new std::vector<std::string>{
      "base", "tensor",       "mesh",    "placement", "device",
      "comm", "redistribute", "dbuffer", "fsdp",      "sweep"};
  return *folders;
}

// The first groups of all that match.
std::set<std::string> FindAll(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end;
       ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

TEST(EnvironmentPage, ListsTheVariablesThatTheSourcesRead) {
  std::vector<std::string> folders = LibraryFolders();
  folders.insert(folders.end(), {"bench", "examples", "testing", "tools"});
  EXPECT_EQ(FindAll(Page("env_vars.md"), "\n\\| `(TESSERA_[A-Z_]+)` "),
            FindAll(Sources(folders), "\"(TESSERA_[A-Z_]+)\""));
}

// In tables: between backquotes, with an ellipsis for what is inserted.
TEST(ErrorsPage, ListsMessagesThatTheSourcesHave) {
  const std::string sources = Sources(LibraryFolders());
  int messages = 0;
  for (absl::string_view line : absl::StrSplit(Page("errors.md"), '\n')) {
    if (!absl::StartsWith(line, "| `")) continue;
    const std::string cell(line.substr(0, line.find(" | ", 2)));
    for (const std::string& message : FindAll(cell, "`([^`]*)`")) {
      ++messages;
      for (absl::string_view part : absl::StrSplit(message, "…")) {
        EXPECT_THAT(sources, HasSubstr(std::string(part))) << message;
      }
    }
  }
  EXPECT_GT(messages, 60);
}

TEST(ErrorsPage, ListsErrorsThatAreNotTheCallersArguments) {
  const std::string page = Page("errors.md");
  const std::set<std::string> stems = FindAll(
      Sources(LibraryFolders()),
      "(?:FailedPrecondition|Unimplemented|Unavailable|ResourceExhausted|"
      "DeadlineExceeded|Aborted|Internal|AlreadyExists)Error\\("
      "\\s*(?:absl::StrCat\\()?\\s*\"([^\"]+)\"");
  EXPECT_GT(stems.size(), 30);
  for (const std::string& stem : stems) EXPECT_THAT(page, HasSubstr(stem));
}

// "comm", "redistribute": each part has its place.
TEST(ErrorsPage, NamesAllPartsThatErrorsComeFrom) {
  const std::string page = Page("errors.md");
  const std::set<std::string> parts =
      FindAll(Sources(LibraryFolders()),
              "Error\\(\\s*(?:absl::StrCat\\()?\\s*\"([a-z_]+: )");
  EXPECT_GT(parts.size(), 10);
  for (const std::string& part : parts) {
    if (part == "skipped: ") continue;  // a benchmark's own
    EXPECT_THAT(page, HasSubstr(absl::StrCat("`", part)));
  }
}

}  // namespace
}  // namespace tessera
