#include "tessera/device/cuda/box.h"

#include <algorithm>

namespace tessera::internal {
namespace {

using Visit = absl::FunctionRef<cudaError_t(const Box&, const BoxOffsets&)>;

int64_t ElementsOf(const Loops& loops) {
  int64_t elements = 1;
  for (const Loop& loop : loops) elements *= loop.extent;
  return elements;
}

Box BoxOf(const Loops& loops) {
  Box box = {.num_loops = static_cast<int>(loops.size())};
  for (size_t d = 0; d < loops.size(); ++d) {
    box.extents[d] = loops[d].extent;
    std::copy(loops[d].strides.begin(), loops[d].strides.end(), box.strides[d]);
  }
  return box;
}

// Covers loops[dim] by pieces of `step` indices.
cudaError_t ForEachPiece(const Loops& loops, int64_t max_elements, size_t dim,
                         int64_t step, const BoxOffsets& begin, Visit visit);

cudaError_t Cover(const Loops& loops, int64_t max_elements,
                  const BoxOffsets& begin, Visit visit) {
  const auto longest = std::max_element(
      loops.begin(), loops.end(),
      [](const Loop& a, const Loop& b) { return a.extent < b.extent; });
  if (ElementsOf(loops) > max_elements) {
    return ForEachPiece(loops, max_elements, longest - loops.begin(),
                        (longest->extent + 1) / 2, begin, visit);
  }
  if (loops.size() > kBoxLoops) {
    return ForEachPiece(loops, max_elements, loops.size() - 1, 1, begin, visit);
  }
  return visit(BoxOf(loops), begin);
}

cudaError_t ForEachPiece(const Loops& loops, int64_t max_elements, size_t dim,
                         int64_t step, const BoxOffsets& begin, Visit visit) {
  const Loop& loop = loops[dim];
  for (int64_t index = 0; index < loop.extent; index += step) {
    Loops piece = loops;
    piece[dim].extent = std::min(step, loop.extent - index);
    if (piece[dim].extent == 1 && loops.size() > 1) {
      piece.erase(piece.begin() + static_cast<int64_t>(dim));
    }
    BoxOffsets offsets = {};
    for (size_t v = 0; v < loop.strides.size(); ++v) {
      offsets[v] = begin[v] + index * loop.strides[v];
    }
    const cudaError_t error = Cover(piece, max_elements, offsets, visit);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t ForEachBox(const Loops& loops, int64_t max_elements, Visit visit) {
  return Cover(loops, max_elements, {}, visit);
}

bool IsDense(const Loops& loops) {
  return loops.size() == 1 &&
         std::all_of(loops[0].strides.begin(), loops[0].strides.end(),
                     [](int64_t stride) { return stride == 1; });
}

}  // namespace tessera::internal
