#ifndef TESSERA_BASE_JSON_READER_H_
#define TESSERA_BASE_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {

// Looks keys up fast. Documents are written from nlohmann::ordered_json, which
// keeps keys as given; it is not for reading: its parser copies values
// recursively where it is watched, so that deep ones overflow the stack.
using Json = nlohmann::json;

// `text` as a JSON value. `part` begins the error messages, e.g. "plan".
// ERRORS: InvalidArgument for what is not JSON, or a key that repeats in its
// object.
absl::StatusOr<Json> ParseJson(absl::string_view part, absl::string_view text);

// A value in a document and what messages call it, as "steps[1].axes": what the
// readers of this library's formats are made of. All errors are
// InvalidArgument: "plan: want a text as 'steps[1].kind', found 3". Texts of
// users are cut short in them.
//
// A cheap handle. LIFETIME: borrows the document and the part.
class JsonReader {
 public:
  JsonReader(absl::string_view part, const Json& document)
      : JsonReader(part, document, "") {}

  const Json& json() const { return *json_; }

  // False also for what is no object.
  bool Has(absl::string_view key) const;
  // ERRORS: for no object, or no such key.
  absl::StatusOr<JsonReader> Member(absl::string_view key) const;
  // ERRORS: for no object.
  absl::StatusOr<std::vector<std::pair<std::string, JsonReader>>> Members()
      const;
  // ERRORS: for no object, a key that is neither required nor optional, or a
  // required key that is not there.
  absl::Status CheckKeys(
      absl::Span<const absl::string_view> required,
      absl::Span<const absl::string_view> optional = {}) const;

  // ERRORS: for no list.
  absl::StatusOr<size_t> Length() const;
  // REQUIRES: index < Length().
  JsonReader Element(size_t index) const;

  absl::StatusOr<std::string> Text() const;
  absl::StatusOr<int64_t> Integer(
      int64_t min, int64_t max = std::numeric_limits<int64_t>::max()) const;

  // parse(text), a StatusOr, of this text. ERRORS: also those of `parse`, with
  // this value's name.
  template <typename Parse>
  auto Parsed(Parse parse) const -> decltype(parse(std::string())) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, Text());
    auto result = parse(text);
    if (!result.ok()) return Error(result.status());
    return result;
  }

  // "plan: want `wanted` as 'steps[1].axes', found ...".
  absl::Status Error(absl::string_view wanted) const;
  // "plan: 'steps[1].axes': ...", about what the value says.
  absl::Status Error(const absl::Status& status) const;
  // "plan: want no key 'colour', found one". REQUIRES: Has(key).
  absl::Status UnknownKey(absl::string_view key) const;

 private:
  JsonReader(absl::string_view part, const Json& json, std::string name)
      : part_(part), json_(&json), name_(std::move(name)) {}

  std::string NameOf(absl::string_view key) const;
  absl::Status MissingKey(absl::string_view key) const;
  std::string Found() const;

  absl::string_view part_;
  const Json* json_;
  std::string name_;  // empty for the document
};

}  // namespace tessera::internal

#endif  // TESSERA_BASE_JSON_READER_H_
