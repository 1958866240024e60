#include "tessera/base/scanner.h"

#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tessera::internal {
namespace {

bool IsNameCharacter(char c, bool first) {
  return c == '_' || (first ? absl::ascii_isalpha(c) : absl::ascii_isalnum(c));
}

// How many characters at the beginning of `text` make a name.
size_t NameSize(absl::string_view text) {
  size_t size = 0;
  while (size < text.size() && IsNameCharacter(text[size], size == 0)) ++size;
  return size;
}

// The text in quotes, printable, with "..." for what is beyond its beginning.
std::string Quote(absl::string_view text) {
  constexpr size_t kMaxQuoted = 80;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMaxQuoted)),
                      text.size() > kMaxQuoted ? "...'" : "'");
}

}  // namespace

bool Scanner::Consume(absl::string_view token) {
  SkipSpace();
  return absl::ConsumePrefix(&rest_, token);
}

absl::string_view Scanner::ConsumeName() {
  SkipSpace();
  const absl::string_view name = rest_.substr(0, NameSize(rest_));
  rest_.remove_prefix(name.size());
  return name;
}

bool Scanner::AtEnd() {
  SkipSpace();
  return rest_.empty();
}

absl::Status Scanner::Error(absl::string_view wanted) {
  const std::string found = AtEnd() ? "the end" : Quote(rest_);
  return absl::InvalidArgumentError(absl::StrCat(
      part_, ": want ", wanted, ", found ", found, " in ", Quote(text_)));
}

void Scanner::SkipSpace() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

bool IsName(absl::string_view text) {
  return !text.empty() && NameSize(text) == text.size();
}

}  // namespace tessera::internal
