#include "tessera/base/json_reader.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace tessera::internal {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Texts that users gave, cut so that messages stay readable.
std::string Excerpt(absl::string_view text, size_t most = 60) {
  if (text.size() <= most) return std::string(text);
  return absl::StrCat(text.substr(0, most), "...");
}

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view part, absl::string_view text) {
  // Of a key that repeats the parser would keep one of the values.
  std::vector<std::set<std::string>> open_objects;
  absl::Status repeats;
  const auto watch_keys = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      open_objects.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_objects.pop_back();
    } else if (event == Json::parse_event_t::key) {
      auto key = parsed.get<std::string>();
      if (!open_objects.back().insert(key).second) {
        repeats.Update(Invalid(part, ": want every key once, found '",
                               Excerpt(key), "' twice"));
      }
    }
    return true;
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), watch_keys);
    TESSERA_RETURN_IF_ERROR(repeats);
    return value;
  } catch (const Json::exception& error) {
    return Invalid(part, ": want JSON, found ", Excerpt(error.what(), 160));
  }
}

bool JsonReader::Has(absl::string_view key) const {
  return json_->contains(std::string(key));
}

absl::StatusOr<JsonReader> JsonReader::Member(absl::string_view key) const {
  if (!json_->is_object()) return Error("an object");
  const auto member = json_->find(std::string(key));
  if (member == json_->end()) return MissingKey(key);
  return JsonReader(part_, *member, NameOf(key));
}

absl::StatusOr<std::vector<std::pair<std::string, JsonReader>>>
JsonReader::Members() const {
  if (!json_->is_object()) return Error("an object");
  std::vector<std::pair<std::string, JsonReader>> members;
  for (const auto& [key, value] : json_->items()) {
    members.emplace_back(key, JsonReader(part_, value, NameOf(key)));
  }
  return members;
}

absl::Status JsonReader::CheckKeys(
    absl::Span<const absl::string_view> required,
    absl::Span<const absl::string_view> optional) const {
  if (!json_->is_object()) return Error("an object");
  for (const auto& [key, value] : json_->items()) {
    if (!absl::c_linear_search(required, key) &&
        !absl::c_linear_search(optional, key)) {
      return UnknownKey(key);
    }
  }
  for (absl::string_view key : required) {
    if (!Has(key)) return MissingKey(key);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> JsonReader::Length() const {
  if (!json_->is_array()) return Error("a list");
  return json_->size();
}

JsonReader JsonReader::Element(size_t index) const {
  return JsonReader(part_, (*json_)[index],
                    absl::StrCat(name_, "[", index, "]"));
}

absl::StatusOr<std::string> JsonReader::Text() const {
  if (!json_->is_string()) return Error("a text");
  return json_->get<std::string>();
}

absl::StatusOr<int64_t> JsonReader::Integer(int64_t min, int64_t max) const {
  // What does not fit int64 is unsigned or floating here.
  const bool fits = json_->is_number_unsigned()
                        ? json_->get<uint64_t>() <=
                              uint64_t{std::numeric_limits<int64_t>::max()}
                        : json_->is_number_integer();
  if (fits) {
    const auto value = json_->get<int64_t>();
    if (value >= min && value <= max) return value;
  }
  return Error(absl::StrCat("an integer from ", min, " to ", max));
}

absl::Status JsonReader::Error(absl::string_view wanted) const {
  return Invalid(part_, ": want ", wanted, " as ",
                 name_.empty() ? "the document" : absl::StrCat("'", name_, "'"),
                 ", found ", Found());
}

absl::Status JsonReader::Error(const absl::Status& status) const {
  return Invalid(part_, ": '", name_, "': ", status.message());
}

absl::Status JsonReader::UnknownKey(absl::string_view key) const {
  return Invalid(part_, ": want no key '", NameOf(key), "', found one");
}

absl::Status JsonReader::MissingKey(absl::string_view key) const {
  return Invalid(part_, ": want a key '", NameOf(key), "', found none");
}

std::string JsonReader::NameOf(absl::string_view key) const {
  return absl::StrCat(name_, name_.empty() ? "" : ".", Excerpt(key));
}

std::string JsonReader::Found() const {
  // Deep values are not printed: that would recurse.
  if (json_->is_structured()) return json_->is_array() ? "a list" : "an object";
  if (!json_->is_string()) return json_->dump();
  const auto& text = json_->get_ref<const std::string&>();
  return absl::StrCat("\"", Excerpt(text), "\"");
}

}  // namespace tessera::internal
