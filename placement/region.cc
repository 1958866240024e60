#include "tessera/placement/region.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

Dims BoxExtents(absl::Span<const Interval> box) {
  Dims extents;
  for (const Interval& interval : box) extents.push_back(interval.size());
  return extents;
}

}  // namespace

int64_t Region::box_elements() const {
  int64_t elements = 1;
  for (const Interval& interval : box) elements *= interval.size();
  return elements;
}

Shape Region::LocalShape() const {
  const Dims extents = flat.has_value() ? Dims{flat->size()} : BoxExtents(box);
  return Shape::Create(extents).value();
}

std::string Region::ToString() const {
  std::string text =
      absl::StrJoin(box, "x", [](std::string* out, const Interval& interval) {
        absl::StrAppend(out, interval.ToString());
      });
  if (!flat.has_value()) return text;
  absl::StrAppend(&text, text.empty() ? "" : " ", "flat ", flat->ToString());
  return text;
}

}  // namespace tessera
