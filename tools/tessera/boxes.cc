#include "tools/tessera/boxes.h"

#include <cstddef>
#include <cstdint>

namespace tessera::tools {
namespace {

// Adds the boxes of elements `flat` of the row-major flattening of what `box`
// spans from `dim` on; before it, `box` stays.
void AddBoxes(const Box& box, size_t dim, Interval flat,
              std::vector<Box>& boxes) {
  if (flat.empty()) return;
  if (dim == box.size()) {
    boxes.push_back(box);
    return;
  }
  int64_t row = 1;  // elements for each index of `dim`
  for (size_t d = dim + 1; d < box.size(); ++d) row *= box[d].size();

  // A part of one index, whole ones, a part of one index.
  const auto add_part = [&](int64_t index, Interval part) {
    Box smaller = box;
    smaller[dim] = {box[dim].begin + index, box[dim].begin + index + 1};
    AddBoxes(smaller, dim + 1, part, boxes);
  };
  const Interval whole = {CeilDiv(flat.begin, row), flat.end / row};
  if (whole.begin > whole.end) {
    add_part(whole.end,
             {flat.begin - whole.end * row, flat.end - whole.end * row});
    return;
  }
  if (flat.begin < whole.begin * row) {
    add_part(whole.begin - 1, {flat.begin - (whole.begin - 1) * row, row});
  }
  if (!whole.empty()) {
    Box middle = box;
    middle[dim] = {box[dim].begin + whole.begin, box[dim].begin + whole.end};
    boxes.push_back(middle);
  }
  if (flat.end > whole.end * row) {
    add_part(whole.end, {0, flat.end - whole.end * row});
  }
}

}  // namespace

std::vector<Box> BoxesOf(const Region& region) {
  std::vector<Box> boxes;
  const Box box(region.box.begin(), region.box.end());
  AddBoxes(box, 0, region.flat.value_or(Interval{0, region.box_elements()}),
           boxes);
  return boxes;
}

}  // namespace tessera::tools
