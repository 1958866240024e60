#include "char_lm/text.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "char_lm/random.h"

namespace char_lm {
namespace {

namespace fs = std::filesystem;

absl::Status ReadError(const fs::path& path, int error) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("text: cannot read '", path.string(), "'"));
}

absl::Status Invalid(const fs::path& path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("text: '", path.string(), "' ", what));
}

// Appends the file's bytes.
absl::Status ReadFile(const fs::path& path, std::string& bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return ReadError(path, errno);
  std::array<char, 1 << 16> chunk;
  do {
    errno = 0;
    bytes.append(chunk.data(),
                 std::fread(chunk.data(), 1, chunk.size(), file.get()));
  } while (!std::feof(file.get()) && !std::ferror(file.get()));
  return std::ferror(file.get()) ? ReadError(path, errno) : absl::OkStatus();
}

// The directory's regular files by name.
absl::StatusOr<std::vector<fs::path>> ListFiles(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; it != end;
       it.increment(error)) {
    if (it->symlink_status(error).type() == fs::file_type::regular) {
      files.push_back(it->path());
    }
    if (error) break;
  }
  if (error) return ReadError(directory, error.value());
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<fs::path>> FilesAt(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return ReadError(path, error.value());
  if (fs::is_directory(status)) return ListFiles(path);
  if (fs::is_regular_file(status)) return std::vector<fs::path>{path};
  return Invalid(path, "is neither a file nor a directory");
}

}  // namespace

Text EncodeText(absl::string_view bytes) {
  std::array<int32_t, 256> ids = {};
  for (const unsigned char byte : bytes) ids[byte] = 1;
  Text text;
  for (int byte = 0; byte < 256; ++byte) {
    if (ids[byte] == 0) continue;
    ids[byte] = static_cast<int32_t>(text.vocabulary.size());
    text.vocabulary.push_back(static_cast<char>(byte));
  }
  text.tokens.reserve(bytes.size());
  for (const unsigned char byte : bytes) text.tokens.push_back(ids[byte]);
  return text;
}

absl::StatusOr<Text> LoadText(const std::string& path, int64_t context) {
  absl::StatusOr<std::vector<fs::path>> files = FilesAt(path);
  if (!files.ok()) return std::move(files).status();
  std::string bytes;
  for (const fs::path& file : *files) {
    absl::Status status = ReadFile(file, bytes);
    if (!status.ok()) return status;
  }
  if (bytes.empty()) return Invalid(path, "is empty");
  if (static_cast<int64_t>(bytes.size()) <= context) {
    return Invalid(path,
                   absl::StrCat("has ", bytes.size(), " characters, want ",
                                "more than the context of ", context));
  }
  Text text = EncodeText(bytes);
  if (text.vocab_size() < 2) return Invalid(path, "repeats a single character");
  return text;
}

Batch SampleBatch(const Text& text, const BatchId& id, int64_t sequences,
                  int64_t context) {
  assert(static_cast<int64_t>(text.tokens.size()) > context);
  Random random({id.seed, static_cast<uint64_t>(id.step),
                 static_cast<uint64_t>(id.microbatch),
                 static_cast<uint64_t>(id.rank)});
  const uint64_t places = text.tokens.size() - context;
  Batch batch;
  for (int64_t i = 0; i < sequences; ++i) {
    const auto first = text.tokens.begin() + random.Next() % places;
    batch.tokens.insert(batch.tokens.end(), first, first + context);
    batch.targets.insert(batch.targets.end(), first + 1, first + context + 1);
  }
  return batch;
}

}  // namespace char_lm
