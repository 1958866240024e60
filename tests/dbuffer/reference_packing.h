#ifndef TESSERA_TESTS_DBUFFER_REFERENCE_PACKING_H_
#define TESSERA_TESTS_DBUFFER_REFERENCE_PACKING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tessera/dbuffer/flat_packing.h"
#include "tessera/tensor/index.h"

// Slow and obvious answers to what PackTensors finds out.

namespace tessera::internal::testing {

// Whether every part end inside the tensor is between two granules.
bool MayBegin(const PackedTensor& tensor, int64_t begin, int64_t part_size);

// The smallest parts with room for the tensors at some offsets: all are tried.
int64_t LeastPartSizeOfAnyOffsets(absl::Span<const PackedTensor> tensors,
                                  int64_t parts, int64_t part_unit);

// Whether the tensors fit as early as can be in some order; all are tried.
bool FitsInAnyOrder(absl::Span<const PackedTensor> tensors, int64_t parts,
                    int64_t part_size);
int64_t LeastPartSizeOfAnyOrder(absl::Span<const PackedTensor> tensors,
                                int64_t parts, int64_t part_unit);

// The smallest multiple of all granules and of the unit at which the tensors
// fit in list order.
int64_t PartSizeOfCommonMultiples(absl::Span<const PackedTensor> tensors,
                                  int64_t parts, int64_t part_unit);

}  // namespace tessera::internal::testing

#endif  // TESSERA_TESTS_DBUFFER_REFERENCE_PACKING_H_
