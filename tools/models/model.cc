#include "tools/models/model.h"

#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/json_reader.h"
#include "tessera/base/status_macros.h"

namespace tessera::tools {
namespace {

using ::tessera::internal::JsonReader;

absl::StatusOr<std::string> ReadName(const JsonReader& object,
                                     absl::string_view key) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member(key));
  TESSERA_ASSIGN_OR_RETURN(std::string name, member.Text());
  if (name.empty() || !absl::c_all_of(name, absl::ascii_isgraph)) {
    return member.Error("a name of printable ASCII without spaces");
  }
  return name;
}

// The name of an element of a list, which has not been used in it.
absl::StatusOr<std::string> ReadNewName(const JsonReader& object,
                                        std::set<std::string>& used) {
  TESSERA_ASSIGN_OR_RETURN(std::string name, ReadName(object, "name"));
  if (used.insert(name).second) return name;
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member, object.Member("name"));
  return member.Error("a name that is not used before");
}

// The elements of a list that has some, each by read(element).
template <typename T, typename Read>
absl::StatusOr<std::vector<T>> ReadSome(const JsonReader& object,
                                        absl::string_view key, Read read) {
  TESSERA_ASSIGN_OR_RETURN(const JsonReader list, object.Member(key));
  TESSERA_ASSIGN_OR_RETURN(const size_t length, list.Length());
  if (length == 0) {
    return list.Error(
        absl::InvalidArgumentError("want at least one, found none"));
  }
  std::vector<T> elements;
  for (size_t i = 0; i < length; ++i) {
    TESSERA_ASSIGN_OR_RETURN(T element, read(list.Element(i)));
    elements.push_back(std::move(element));
  }
  return elements;
}

absl::StatusOr<Shape> ReadShape(const JsonReader& list) {
  TESSERA_ASSIGN_OR_RETURN(const size_t length, list.Length());
  Dims extents;
  for (size_t i = 0; i < length; ++i) {
    TESSERA_ASSIGN_OR_RETURN(const int64_t extent, list.Element(i).Integer(0));
    extents.push_back(extent);
  }
  absl::StatusOr<Shape> shape = Shape::Create(extents);
  if (!shape.ok()) return list.Error(shape.status());
  return shape;
}

absl::StatusOr<Model::Param> ReadParam(const JsonReader& object,
                                       std::set<std::string>& used) {
  TESSERA_RETURN_IF_ERROR(object.CheckKeys({"name", "shape"}));
  Model::Param param;
  TESSERA_ASSIGN_OR_RETURN(param.name, ReadNewName(object, used));
  TESSERA_ASSIGN_OR_RETURN(const JsonReader shape, object.Member("shape"));
  TESSERA_ASSIGN_OR_RETURN(param.shape, ReadShape(shape));
  if (param.shape.num_elements() == 0) {
    return shape.Error(absl::InvalidArgumentError(
        absl::StrCat("tensor '", param.name, "' ", param.shape.ToString(),
                     " has no elements, want at least one")));
  }
  return param;
}

absl::StatusOr<Model::Unit> ReadUnit(const JsonReader& object,
                                     std::set<std::string>& used) {
  TESSERA_RETURN_IF_ERROR(object.CheckKeys({"name", "params"}, {"repeat"}));
  Model::Unit unit;
  TESSERA_ASSIGN_OR_RETURN(unit.name, ReadNewName(object, used));
  if (object.Has("repeat")) {
    TESSERA_ASSIGN_OR_RETURN(const JsonReader repeat, object.Member("repeat"));
    TESSERA_ASSIGN_OR_RETURN(unit.repeat, repeat.Integer(1));
  }
  std::set<std::string> used_params;
  TESSERA_ASSIGN_OR_RETURN(
      unit.params,
      ReadSome<Model::Param>(object, "params", [&](const JsonReader& param) {
        return ReadParam(param, used_params);
      }));
  return unit;
}

// Nullopt where it does not fit.
std::optional<int64_t> CountElements(const Model& model) {
  int64_t total = 0;
  for (const Model::Unit& unit : model.units) {
    int64_t elements = 0;
    for (const Model::Param& param : unit.params) {
      const auto sum = CheckedAdd(elements, param.shape.num_elements());
      if (!sum.has_value()) return std::nullopt;
      elements = *sum;
    }
    const auto repeated = CheckedMul(elements, unit.repeat);
    if (!repeated.has_value()) return std::nullopt;
    const auto sum = CheckedAdd(total, *repeated);
    if (!sum.has_value()) return std::nullopt;
    total = *sum;
  }
  return total;
}

absl::Status CheckTotal(const JsonReader& root, const Model& model) {
  const std::optional<int64_t> total = CountElements(model);
  if (!total.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model: '", model.name, "' has more elements than int64 can count"));
  }
  if (!root.Has("total_elements")) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const JsonReader member,
                           root.Member("total_elements"));
  TESSERA_ASSIGN_OR_RETURN(const int64_t stated, member.Integer(0));
  if (stated == *total) return absl::OkStatus();
  return member.Error(absl::StrCat("the sum over all units, ", *total, ","));
}

}  // namespace

int64_t Model::Unit::num_elements() const {
  int64_t elements = 0;
  for (const Param& param : params) elements += param.shape.num_elements();
  return elements;
}

int64_t Model::num_elements() const {
  int64_t elements = 0;
  for (const Unit& unit : units) elements += unit.repeat * unit.num_elements();
  return elements;
}

absl::StatusOr<Model> ParseModel(absl::string_view json) {
  TESSERA_ASSIGN_OR_RETURN(const internal::Json document,
                           internal::ParseJson("model", json));
  const JsonReader root("model", document);
  TESSERA_RETURN_IF_ERROR(
      root.CheckKeys({"model", "dtype", "units"}, {"total_elements"}));
  Model model;
  TESSERA_ASSIGN_OR_RETURN(model.name, ReadName(root, "model"));
  TESSERA_ASSIGN_OR_RETURN(const JsonReader dtype, root.Member("dtype"));
  TESSERA_ASSIGN_OR_RETURN(model.dtype, dtype.Parsed(ParseDType));
  std::set<std::string> used_units;
  TESSERA_ASSIGN_OR_RETURN(
      model.units,
      ReadSome<Model::Unit>(root, "units", [&](const JsonReader& unit) {
        return ReadUnit(unit, used_units);
      }));
  TESSERA_RETURN_IF_ERROR(CheckTotal(root, model));
  return model;
}

}  // namespace tessera::tools
