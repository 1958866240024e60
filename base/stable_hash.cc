#include "tessera/base/stable_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::internal {

uint64_t StableHash(absl::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace tessera::internal
