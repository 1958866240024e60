#ifndef TESSERA_TESTS_TOOLS_JSON_SCHEMA_H_
#define TESSERA_TESTS_TOOLS_JSON_SCHEMA_H_

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::testing {

// What is wrong with a JSON value by a JSON schema, or "": of the keywords
// those that the schemas in docs/ use, and a fault of the schema if it uses
// others.
class JsonSchema {
 public:
  explicit JsonSchema(nlohmann::json schema) : root_(std::move(schema)) {}

  std::string FaultOf(const nlohmann::json& value) const {
    return FaultOf(root_, value, "document");
  }

 private:
  using Json = nlohmann::json;

  std::string FaultOf(const Json& schema, const Json& value,
                      const std::string& name) const {
    for (const auto& [keyword, wanted] : schema.items()) {
      const std::string fault =
          CheckKeyword(keyword, wanted, schema, value, name);
      if (!fault.empty()) return fault;
    }
    return "";
  }

  std::string CheckKeyword(const std::string& keyword, const Json& wanted,
                           const Json& schema, const Json& value,
                           const std::string& name) const {
    static const std::set<std::string> notes = {"$schema", "$id", "$defs",
                                                "title", "description"};
    if (notes.count(keyword)) return "";
    const auto fault_unless = [&](bool holds) {
      return holds ? ""
                   : absl::StrCat(name, " is not of ", keyword, " ",
                                  wanted.dump(), ": ", value.dump());
    };
    if (keyword == "$ref") {
      const auto pointer = wanted.get<std::string>().substr(1);
      return FaultOf(root_.at(Json::json_pointer(pointer)), value, name);
    }
    if (keyword == "type") return fault_unless(HasType(value, wanted));
    if (keyword == "const") return fault_unless(value == wanted);
    if (keyword == "enum") {
      return fault_unless(std::count(wanted.begin(), wanted.end(), value) > 0);
    }
    // What is of another type passes the keywords for one type.
    if (keyword == "pattern") {
      if (!value.is_string()) return "";
      return fault_unless(
          std::regex_search(value.get<std::string>(), std::regex(wanted)));
    }
    if (keyword == "minimum") {
      if (!value.is_number()) return "";
      return fault_unless(value.get<double>() >= wanted.get<double>());
    }
    if (keyword == "items") {
      if (!value.is_array()) return "";
      for (const Json& item : value) {
        const std::string fault = FaultOf(wanted, item, name + "[]");
        if (!fault.empty()) return fault;
      }
      return "";
    }
    if (keyword == "required") {
      if (!value.is_object()) return "";
      for (const Json& key : wanted) {
        if (!value.contains(key.get<std::string>())) {
          return absl::StrCat(name, " has no ", key.dump());
        }
      }
      return "";
    }
    if (keyword == "properties") {
      if (!value.is_object()) return "";
      for (const auto& [key, member] : value.items()) {
        if (!wanted.contains(key)) continue;
        const std::string fault =
            FaultOf(wanted[key], member, absl::StrCat(name, ".", key));
        if (!fault.empty()) return fault;
      }
      return "";
    }
    if (keyword == "additionalProperties") {
      if (!value.is_object()) return "";
      const Json named = schema.value("properties", Json::object());
      for (const auto& [key, member] : value.items()) {
        if (named.contains(key)) continue;
        if (!wanted.is_object()) {
          return absl::StrCat(name, " has an unknown key ", key);
        }
        const std::string fault =
            FaultOf(wanted, member, absl::StrCat(name, ".", key));
        if (!fault.empty()) return fault;
      }
      return "";
    }
    return absl::StrCat("the schema has a keyword ", keyword);
  }

  static bool HasType(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return false;
  }

  const Json root_;
};

// Of `keys`, JSON pointers into `right`, those that the schema does not mind:
// it accepts `right` without one, or with -1 there.
inline std::vector<std::string> UncheckedKeys(
    const JsonSchema& schema, const nlohmann::json& right,
    const std::vector<std::string>& keys) {
  std::vector<std::string> unchecked;
  for (const std::string& key : keys) {
    const nlohmann::json::json_pointer pointer(key);
    nlohmann::json missing = right;
    missing.at(pointer.parent_pointer()).erase(pointer.back());
    nlohmann::json another = right;
    another.at(pointer) = -1;
    if (schema.FaultOf(missing).empty() || schema.FaultOf(another).empty()) {
      unchecked.push_back(key);
    }
  }
  return unchecked;
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_TOOLS_JSON_SCHEMA_H_
