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

struct File {
  fs::path path;
  int64_t size = 0;
};

absl::StatusOr<File> FileAt(const fs::path& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return ReadError(path, error.value());
  return File{path, size};
}

// The directory's regular files by name.
absl::StatusOr<std::vector<File>> ListFiles(const fs::path& directory) {
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; it != end;
       it.increment(error)) {
    if (it->symlink_status(error).type() == fs::file_type::regular) {
      absl::StatusOr<File> file = FileAt(it->path());
      if (!file.ok()) return std::move(file).status();
      files.push_back(*std::move(file));
    }
    if (error) break;
  }
  if (error) return ReadError(directory, error.value());
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

absl::StatusOr<std::vector<File>> FilesAt(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return ReadError(path, error.value());
  if (fs::is_directory(status)) return ListFiles(path);
  if (!fs::is_regular_file(status)) {
    return Invalid(path, "is neither a file nor a directory");
  }
  absl::StatusOr<File> file = FileAt(path);
  if (!file.ok()) return std::move(file).status();
  return std::vector<File>{*std::move(file)};
}

absl::Status CheckTotalSize(const fs::path& path,
                            const std::vector<File>& files) {
  int64_t left = kMostTextBytes;
  for (const File& file : files) {
    if (file.size > left) {
      return Invalid(path, absl::StrCat("has more than ", kMostTextBytes >> 20,
                                        " MiB of text"));
    }
    left -= file.size;
  }
  return absl::OkStatus();
}

// Appends the file's bytes, no more than its size, so that this ends whatever
// stands behind it: the system's own files report no size and may block.
absl::Status ReadFile(const File& file, std::string& bytes) {
  if (file.size == 0) return absl::OkStatus();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(
      std::fopen(file.path.c_str(), "rb"), &std::fclose);
  if (stream == nullptr) return ReadError(file.path, errno);
  const size_t start = bytes.size();
  bytes.resize(start + file.size);
  errno = 0;
  const size_t count =
      std::fread(bytes.data() + start, 1, file.size, stream.get());
  if (std::ferror(stream.get())) return ReadError(file.path, errno);
  bytes.resize(start + count);
  return absl::OkStatus();
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
  absl::StatusOr<std::vector<File>> files = FilesAt(path);
  if (!files.ok()) return std::move(files).status();
  absl::Status status = CheckTotalSize(path, *files);
  std::string bytes;
  for (const File& file : *files) {
    if (status.ok()) status = ReadFile(file, bytes);
  }
  if (!status.ok()) return status;
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
