#ifndef CHAR_LM_TEXT_H_
#define CHAR_LM_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace char_lm {

// The licences that every Debian machine has.
inline constexpr char kDefaultTextPath[] = "/usr/share/common-licenses";

// The longest text. A run learns from far less.
inline constexpr int64_t kMostTextBytes = int64_t{64} << 20;

// A text as token ids: a token is a byte, its id the place in `vocabulary`.
struct Text {
  std::string vocabulary;  // The bytes that occur, ascending as unsigned.
  std::vector<int32_t> tokens;

  int64_t vocab_size() const { return static_cast<int64_t>(vocabulary.size()); }
};

// The text of `bytes`.
Text EncodeText(absl::string_view bytes);

// Reads the file at `path`, or all regular files of the directory at `path`,
// one after the other by name; symbolic links in it are passed over, lest a
// text count twice. A file is as long as the system says: those that report no
// size, as under /proc, are empty.
//
// ERRORS, of one line: NotFound, PermissionDenied and the like where the system
// does not let it be read; InvalidArgument where it is neither a file nor a
// directory, is empty, is longer than kMostTextBytes, is shorter than
// context + 1 (a sequence and its last target), or repeats a single byte.
absl::StatusOr<Text> LoadText(const std::string& path, int64_t context);

// Token ids and what follows each of them, [sequences, context].
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

// Which batch of a training run.
struct BatchId {
  uint64_t seed = 0;
  int64_t step = 0;
  int microbatch = 0;
  int rank = 0;
};

// `sequences` pieces of the text at places drawn by `id`: a pure function of
// its arguments, independent for different ids.
//
// REQUIRES: text.tokens.size() > context, sequences >= 1, context >= 1.
Batch SampleBatch(const Text& text, const BatchId& id, int64_t sequences,
                  int64_t context);

}  // namespace char_lm

#endif  // CHAR_LM_TEXT_H_
