#ifndef TESSERA_BASE_STABLE_HASH_H_
#define TESSERA_BASE_STABLE_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tessera::internal {

// An xxh3 hash of `text`: the same in every process, on every host and from
// every compiler, so that ranks can compare what they mean to do.
uint64_t StableHash(absl::string_view text);

}  // namespace tessera::internal

#endif  // TESSERA_BASE_STABLE_HASH_H_
