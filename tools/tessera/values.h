#ifndef TESSERA_TOOLS_TESSERA_VALUES_H_
#define TESSERA_TOOLS_TESSERA_VALUES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tessera/dbuffer/granularity.h"
#include "tessera/fsdp/placements.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/tensor_meta.h"
#include "tools/models/model.h"

// The values of flags. Errors are InvalidArgument and begin with the flag:
// "--mesh: mesh: axis 'tp' has size 0, want at least 1".

namespace tessera::tools {

absl::StatusOr<DeviceMesh> ParseMesh(const std::string& flag,
                                     const std::string& text);

absl::StatusOr<DType> ParseDTypeFlag(const std::string& text);  // --dtype

// --granularity: "element", "inner-row", "row" or "rows:K".
absl::StatusOr<Granularity> ParseGranularity(const std::string& text);

// --dtype and --shape: extents with commas between them, with or without
// brackets; "" or "[]" is a scalar.
absl::StatusOr<TensorMeta> ParseTensor(const std::string& dtype,
                                       const std::string& shape);

absl::StatusOr<Layout> ParseLayout(const std::string& flag,
                                   const std::string& placements,
                                   const TensorMeta& meta,
                                   const DeviceMesh& mesh);

// --strategy: one of StrategyNames, for so many mesh axes.
absl::StatusOr<UnitPlacements> ParseStrategy(const std::string& text,
                                             int num_axes);
// --placements: as UnitPlacements::ToString writes them.
absl::StatusOr<UnitPlacements> ParsePlacements(const std::string& text);

// --topology: the name of a preset, or a file of Topology::ToJson, whose name
// ends with ".json". ERRORS: also NotFound.
absl::StatusOr<Topology> ParseTopology(const std::string& text);
// For --help: "a100-hdr, h100-ib, ... or FILE.json".
std::string TopologyChoices();

// --model: the name of a built-in model, or a file as ParseModel reads it,
// whose name ends with ".json". ERRORS: also NotFound.
absl::StatusOr<Model> LoadModel(const std::string& text);
// For --help.
std::string ModelChoices();

// "64MiB", "1GiB", "512KiB" or a number of bytes.
absl::StatusOr<int64_t> ParseBytes(const std::string& flag,
                                   const std::string& text);
// "64.0 MiB"; below 1 KiB "17 B".
std::string FormatBytes(int64_t bytes);

// "12.50": how many % of the whole. REQUIRES: whole > 0.
std::string FormatPercent(int64_t part, int64_t whole);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_VALUES_H_
