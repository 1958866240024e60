#include "tessera/fsdp/power_of_two.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

absl::Status CheckPowerOfTwo(absl::string_view name, double value,
                             int exponent) {
  int found = 0;
  const bool is_power = std::frexp(value, &found) == 0.5;
  if (is_power && std::abs(found - 1) <= exponent) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", want a power of two from 2^-",
                   exponent, " to 2^", exponent));
}

}  // namespace tessera::internal
