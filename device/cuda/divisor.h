#ifndef TESSERA_DEVICE_CUDA_DIVISOR_H_
#define TESSERA_DEVICE_CUDA_DIVISOR_H_

#include <cstdint>

#include "tessera/device/cuda/host_device.h"

namespace tessera::internal {

// Divides numbers below 2^31 by one that is the same for all: a product and a
// shift on a GPU, which has no division of integers. The multiplier is
// ceil(2^(31 + s) / d) with 2^s >= d, exact after Granlund and Montgomery,
// "Division by invariant integers using multiplication", theorem 4.2.
class Divisor {
 public:
  Divisor() = default;
  // REQUIRES: 1 <= divisor < 2^31.
  explicit Divisor(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    while ((int64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    const uint64_t power = uint64_t{1} << shift_;
    multiplier_ = static_cast<uint32_t>((power + divisor_ - 1) / divisor_);
  }

  TESSERA_HOST_DEVICE uint32_t Quotient(uint32_t n) const {
    return static_cast<uint32_t>(uint64_t{n} * multiplier_ >> shift_);
  }
  TESSERA_HOST_DEVICE uint32_t divisor() const { return divisor_; }

 private:
  uint32_t divisor_ = 1;
  uint32_t multiplier_ = uint32_t{1} << 31;
  int shift_ = 31;
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_DIVISOR_H_
