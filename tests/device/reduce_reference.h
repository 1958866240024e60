#ifndef TESSERA_TESTS_DEVICE_REDUCE_REFERENCE_H_
#define TESSERA_TESTS_DEVICE_REDUCE_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"
#include "tests/device/elementwise_reference.h"

// Slow and obvious reductions.

namespace tessera::testing {

template <typename T>
bool LegalReduceOp(ReduceOp op) {
  return IsFloating(DTypeOf<T>) || op != ReduceOp::kAvg;
}

template <typename T>
T Combine(ReduceOp op, T a, T b) {
  using Unsigned = uint64_t;
  if (std::isnan(static_cast<double>(a))) return a;
  if (std::isnan(static_cast<double>(b))) return b;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<Unsigned>(a) +
                              static_cast<Unsigned>(b));
      } else {
        return a + b;
      }
    case ReduceOp::kProduct:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<Unsigned>(a) *
                              static_cast<Unsigned>(b));
      } else {
        return a * b;
      }
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kMax:
      return a > b ? a : b;
  }
  return a;
}

// One element of every source, in order.
template <typename T>
T ReduceReference(ReduceOp op, const std::vector<T>& values) {
  using Wide = std::conditional_t<kIsHalf<T>, float, T>;
  auto result = static_cast<Wide>(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    result = Combine(op, result, static_cast<Wide>(values[i]));
  }
  if (op == ReduceOp::kAvg) result /= static_cast<Wide>(values.size());
  return FromExact<T>(result);
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_DEVICE_REDUCE_REFERENCE_H_
