#ifndef TESSERA_TESTS_TOOLS_SIMPLE_PLANNER_H_
#define TESSERA_TESTS_TOOLS_SIMPLE_PLANNER_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "tessera/dbuffer/flat_layout.h"

namespace tessera::testing {

// What a simple planner would do, in elements of a part: of all multiples of
// 128 bytes below `limit` the smallest at which the tensors fit, each as early
// as can be, in one of three orders: as listed, the largest granules first, the
// largest tensors first.
std::optional<int64_t> SimplePartSize(
    absl::Span<const FlatLayout::Tensor> tensors, int64_t ranks,
    DType narrowest, int64_t limit);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_TOOLS_SIMPLE_PLANNER_H_
