#ifndef TESSERA_TOOLS_MODELS_PADDING_RULES_H_
#define TESSERA_TOOLS_MODELS_PADDING_RULES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tessera/dbuffer/granularity.h"
#include "tools/models/model.h"

namespace tessera::tools {

// What padding, in elements, comes of the rules by which other systems cut a
// unit into parts. To compare with.
//
// ERRORS: InvalidArgument where sizes do not fit int64.
// REQUIRES: ranks >= 1.

// Megatron-FSDP: parts are a whole number of cells, of as many elements as the
// least common multiple of all granules and `align`. Parameters begin and end
// on the borders of cells; where one leaves a cell unfilled, another one's
// remainder goes there, and parameters smaller than a cell. Granules are rows
// along dim 0 there.
absl::StatusOr<int64_t> MegatronPadding(
    const Model::Unit& unit, int64_t ranks,
    const Granularity& granularity = Granularity::Row(), int64_t align = 1);

// FSDP2: every parameter by itself is cut into parts of as many rows along dim
// 0.
absl::StatusOr<int64_t> Fsdp2Padding(const Model::Unit& unit, int64_t ranks);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_MODELS_PADDING_RULES_H_
