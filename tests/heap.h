#ifndef TESSERA_TESTS_HEAP_H_
#define TESSERA_TESTS_HEAP_H_

#include <malloc.h>

#include <cstdint>

namespace tessera::testing {

// The bytes that this process has from glibc's malloc: few, and always the
// same, where a sanitizer has one of its own. Thread-safe.
inline int64_t HeapBytesInUse() {
  // Beside a sanitizer's, glibc's may not be set up before it is asked, and two
  // threads that ask must not both do it.
  static const struct mallinfo2 first = mallinfo2();
  static_cast<void>(first);
  const struct mallinfo2 now = mallinfo2();
  return static_cast<int64_t>(now.uordblks + now.hblkhd);
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_HEAP_H_
