#include "tools/tessera/values.h"

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/file.h"
#include "tessera/base/status_macros.h"
#include "tools/models/built_in.h"

namespace tessera::tools {
namespace {

absl::Status Wrong(absl::string_view flag, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", problem));
}

// The result, or its error with the flag in front.
template <typename T>
absl::StatusOr<T> OfFlag(absl::string_view flag, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return Wrong(flag, result.status().message());
}

// named(text) or, where the text is the name of a file, parse(what it holds).
template <typename Named, typename Parse>
auto NamedOrRead(absl::string_view flag, const std::string& text, Named named,
                 Parse parse) -> decltype(parse(text)) {
  if (!absl::EndsWith(text, ".json")) return OfFlag(flag, named(text));
  TESSERA_ASSIGN_OR_RETURN(const std::string json,
                           OfFlag(flag, internal::ReadFile(text)));
  return OfFlag(absl::StrCat(flag, ": ", text), parse(json));
}

struct Unit {
  absl::string_view name;
  int64_t bytes;
};
constexpr Unit kUnits[] = {{"KiB", int64_t{1} << 10},
                           {"MiB", int64_t{1} << 20},
                           {"GiB", int64_t{1} << 30},
                           {"TiB", int64_t{1} << 40}};

}  // namespace

absl::StatusOr<DeviceMesh> ParseMesh(const std::string& flag,
                                     const std::string& text) {
  return OfFlag(flag, DeviceMesh::Parse(text));
}

absl::StatusOr<DType> ParseDTypeFlag(const std::string& text) {
  return OfFlag("--dtype", ParseDType(text));
}

absl::StatusOr<Granularity> ParseGranularity(const std::string& text) {
  return OfFlag("--granularity", Granularity::Parse(text));
}

absl::StatusOr<TensorMeta> ParseTensor(const std::string& dtype,
                                       const std::string& shape) {
  TESSERA_ASSIGN_OR_RETURN(const DType parsed_dtype, ParseDTypeFlag(dtype));
  const bool has_brackets = absl::StartsWith(shape, "[");
  TESSERA_ASSIGN_OR_RETURN(
      const Shape parsed_shape,
      OfFlag(
          "--shape",
          Shape::Parse(has_brackets ? shape : absl::StrCat("[", shape, "]"))));
  return OfFlag("--shape", TensorMeta::Create(parsed_dtype, parsed_shape));
}

absl::StatusOr<Layout> ParseLayout(const std::string& flag,
                                   const std::string& placements,
                                   const TensorMeta& meta,
                                   const DeviceMesh& mesh) {
  TESSERA_ASSIGN_OR_RETURN(
      const Layout replicated,
      Layout::Create(meta, mesh, Placements(mesh.num_axes())));
  return OfFlag(flag, replicated.With(placements));
}

absl::StatusOr<UnitPlacements> ParseStrategy(const std::string& text,
                                             int num_axes) {
  return OfFlag("--strategy", PlacementsFor(text, num_axes));
}

absl::StatusOr<UnitPlacements> ParsePlacements(const std::string& text) {
  return OfFlag("--placements", ParseUnitPlacements(text));
}

absl::StatusOr<Topology> ParseTopology(const std::string& text) {
  return NamedOrRead("--topology", text, Topology::Preset, Topology::FromJson);
}

std::string TopologyChoices() {
  return absl::StrCat(absl::StrJoin(Topology::PresetNames(), ", "),
                      " or FILE.json");
}

absl::StatusOr<Model> LoadModel(const std::string& text) {
  return NamedOrRead("--model", text, BuiltInModel, ParseModel);
}

std::string ModelChoices() {
  return absl::StrCat(absl::StrJoin(BuiltInModelNames(), ", "),
                      " or FILE.json");
}

absl::StatusOr<int64_t> ParseBytes(const std::string& flag,
                                   const std::string& text) {
  absl::string_view number = text;
  int64_t unit = 1;
  for (const Unit& u : kUnits) {
    if (absl::ConsumeSuffix(&number, u.name)) unit = u.bytes;
  }
  int64_t count = 0;
  const bool is_number = absl::SimpleAtoi(number, &count) && count >= 0;
  const std::optional<int64_t> bytes =
      is_number ? CheckedMul(count, unit) : std::nullopt;
  if (bytes.has_value()) return *bytes;
  return Wrong(flag, absl::StrCat("want bytes, as 1000, 512KiB, 64MiB or "
                                  "2GiB, below 2^63, found '",
                                  text, "'"));
}

std::string FormatBytes(int64_t bytes) {
  const Unit* unit = nullptr;
  for (const Unit& u : kUnits) {
    if (bytes >= u.bytes) unit = &u;
  }
  if (unit == nullptr) return absl::StrCat(bytes, " B");
  return absl::StrFormat("%.1f %s", static_cast<double>(bytes) / unit->bytes,
                         unit->name);
}

std::string FormatPercent(int64_t part, int64_t whole) {
  return absl::StrFormat(
      "%.2f", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace tessera::tools
