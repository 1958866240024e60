#include "tessera/fsdp/chunk_plan.h"

#include <algorithm>

namespace tessera::internal {

std::vector<Chunk> PlanChunks(absl::Span<const int64_t> sizes,
                              int64_t chunk_elements) {
  std::vector<Chunk> chunks;
  int64_t room = 0;  // in the last chunk
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t begin = 0; begin < sizes[i];) {
      if (room == 0) {
        chunks.emplace_back();
        room = chunk_elements;
      }
      const int64_t size = std::min(room, sizes[i] - begin);
      chunks.back().push_back({static_cast<int>(i), {begin, begin + size}});
      begin += size;
      room -= size;
    }
  }
  return chunks;
}

}  // namespace tessera::internal
