#ifndef TESSERA_FSDP_CHUNK_PLAN_H_
#define TESSERA_FSDP_CHUNK_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/tensor/index.h"

namespace tessera::internal {

// Elements of one tensor of a list.
struct ChunkPiece {
  int tensor = 0;  // its index in the list
  Interval elements = {};
  friend bool operator==(const ChunkPiece&, const ChunkPiece&) = default;
};

// Pieces that are communicated as one.
using Chunk = std::vector<ChunkPiece>;

// Cuts the elements of a list of tensors, one tensor after the other, every
// `chunk_elements`:
//
//   POST: the pieces of all chunks, joined, are the elements in list order;
//         no piece is empty; every chunk but the last one has chunk_elements;
//         there are ceil(sum of sizes / chunk_elements) of them
//
//   PlanChunks({6, 6, 6, 6}, 10): {0:[0,6) 1:[0,4)} {1:[4,6) 2:[0,6) 3:[0,2)}
//                                 {3:[2,6)}
//
// Pure. REQUIRES: no negative size; chunk_elements >= 1.
std::vector<Chunk> PlanChunks(absl::Span<const int64_t> sizes,
                              int64_t chunk_elements);

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_CHUNK_PLAN_H_
