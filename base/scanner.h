#ifndef TESSERA_BASE_SCANNER_H_
#define TESSERA_BASE_SCANNER_H_

#include <charconv>
#include <optional>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::internal {

// Reads a text from front to back: what the parsers of this library are made
// of. White space is skipped in front of whatever is read. Each Consume
// function moves behind what it finds, or else stays where it is.
class Scanner {
 public:
  // `part` begins the error messages, e.g. "mesh". LIFETIME: borrows both.
  Scanner(absl::string_view part, absl::string_view text)
      : part_(part), text_(text), rest_(text) {}

  bool Consume(absl::string_view token);

  // A decimal number that fits T; a sign may only be '-'.
  template <typename T>
  std::optional<T> ConsumeInt() {
    SkipSpace();
    T value = 0;
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(end - rest_.data());
    return value;
  }

  // Letters, digits and '_', a digit not first; empty where there are none.
  absl::string_view ConsumeName();

  bool AtEnd();

  // InvalidArgument: "mesh: want a size, found 'x,tp=4' in 'dp=x,tp=4'". Long
  // texts are cut short.
  absl::Status Error(absl::string_view wanted);

 private:
  void SkipSpace();

  absl::string_view part_;
  absl::string_view text_;
  absl::string_view rest_;
};

// True for what ConsumeName reads.
bool IsName(absl::string_view text);

}  // namespace tessera::internal

#endif  // TESSERA_BASE_SCANNER_H_
