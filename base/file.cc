#include "tessera/base/file.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const auto error = [&] {
    return absl::NotFoundError(absl::StrCat(
        path, ": want a file to read, found: ", std::strerror(errno)));
  };
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return error();
  std::string text;
  std::array<char, 4096> chunk;
  while (size_t n = std::fread(chunk.data(), 1, chunk.size(), file)) {
    text.append(chunk.data(), n);
  }
  absl::Status status;
  if (std::ferror(file)) status = error();
  std::fclose(file);
  if (!status.ok()) return status;
  return text;
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const auto error = [&] {
    return absl::PermissionDeniedError(absl::StrCat(
        path, ": want a file to write, found: ", std::strerror(errno)));
  };
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return error();
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size();
  absl::Status status;
  if (!written) status = error();
  if (std::fclose(file) != 0 && status.ok()) status = error();
  return status;
}

}  // namespace tessera::internal
