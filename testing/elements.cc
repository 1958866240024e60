#include "tessera/testing/elements.h"

#include <utility>

namespace tessera::testing::internal {

std::vector<MeshCoords> AllCoords(const DeviceMesh& mesh) {
  std::vector<MeshCoords> all = {{}};
  for (const MeshAxis& axis : mesh.axes()) {
    std::vector<MeshCoords> longer;
    for (const MeshCoords& coords : all) {
      for (int i = 0; i < axis.size; ++i) {
        longer.push_back(coords);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::vector<int64_t> HeldElements(const Layout& layout,
                                  const MeshCoords& coords) {
  const Region region = layout.RegionAt(coords);
  std::vector<int64_t> elements = {0};
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    std::vector<int64_t> more;
    for (int64_t element : elements) {
      for (int64_t i = region.box[dim].begin; i < region.box[dim].end; ++i) {
        more.push_back(element * layout.shape().extent(dim) + i);
      }
    }
    elements = std::move(more);
  }
  if (!region.flat.has_value()) return elements;
  return {elements.begin() + region.flat->begin,
          elements.begin() + region.flat->end};
}

}  // namespace tessera::testing::internal
