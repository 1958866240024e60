#ifndef TESSERA_TENSOR_REDUCE_OP_H_
#define TESSERA_TENSOR_REDUCE_OP_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace tessera {

// How values that several ranks hold of one element combine. kAvg is the sum
// divided by the number of values, floating dtypes only. kMin and kMax
// propagate NaN.
enum class ReduceOp : uint8_t { kSum, kAvg, kMin, kMax, kProduct };

inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::kSum, ReduceOp::kAvg,
                                             ReduceOp::kMin, ReduceOp::kMax,
                                             ReduceOp::kProduct};

// True if the op is a sum but for a factor.
constexpr bool IsLinear(ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAvg;
}

// True if reductions by these ops over different axes commute, so that a
// tensor may be partial by both: equal ops, and sum with avg.
constexpr bool MayMix(ReduceOp a, ReduceOp b) {
  return a == b || (IsLinear(a) && IsLinear(b));
}

// "sum", "avg", "min", "max", "product".
constexpr absl::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "";
}

constexpr std::optional<ReduceOp> ParseReduceOp(absl::string_view name) {
  for (ReduceOp op : kAllReduceOps) {
    if (name == ReduceOpName(op)) return op;
  }
  return std::nullopt;
}

}  // namespace tessera

#endif  // TESSERA_TENSOR_REDUCE_OP_H_
