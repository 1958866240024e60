#ifndef TESSERA_TESTS_COUNT_ALLOCATIONS_H_
#define TESSERA_TESTS_COUNT_ALLOCATIONS_H_

#include <cstdint>

namespace tessera::testing {

// How often this program has called operator new so far, on any thread. A
// program that links count_allocations.cc replaces the operators.
int64_t NumAllocations();

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_COUNT_ALLOCATIONS_H_
