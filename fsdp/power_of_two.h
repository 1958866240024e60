#ifndef TESSERA_FSDP_POWER_OF_TWO_H_
#define TESSERA_FSDP_POWER_OF_TWO_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::internal {

// Gradients are scaled by powers of two, which rounds nothing, from 2^-e to
// 2^e: so wide that f16 needs no more, so narrow that the scale of a
// contribution, the quotient of all, stays normal in f32.
inline constexpr int kWirePreScaleExponent = 24;
inline constexpr int kLossScaleExponent = 64;

// InvalidArgument, with `name`, unless `value` is one of those.
absl::Status CheckPowerOfTwo(absl::string_view name, double value,
                             int exponent);

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_POWER_OF_TWO_H_
