#ifndef TESSERA_DEVICE_CPU_OPTIMIZER_KERNELS_H_
#define TESSERA_DEVICE_CPU_OPTIMIZER_KERNELS_H_

#include <cstdint>

#include "tessera/device/optimizer_update.h"
#include "tessera/tensor/dtype.h"

namespace tessera::internal {

// Updates of n weights that lie one behind the other, as do their gradients and
// what an optimizer keeps of each, with the widest vectors that this processor
// has. An element's bits depend on nothing but its operands: not on alignment,
// length or processor. Rows do not overlap. Thread-safe.
struct UpdateRows {
  int64_t n = 0;
  DType dtype = DType::kF32;  // f32 or f64, of the weight and what is kept
  void* weight = nullptr;
  DType gradient_dtype = DType::kF32;  // f32 or f64
  const void* gradient = nullptr;
  // The momentum of SGD, not looked at without; the first moment of AdamW, and
  // the second.
  void* first = nullptr;
  void* second = nullptr;
};

void SgdRow(const UpdateRows& rows, const SgdUpdate& update);
void AdamWRow(const UpdateRows& rows, const AdamWUpdate& update);

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CPU_OPTIMIZER_KERNELS_H_
