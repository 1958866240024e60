#include "tessera/dbuffer/flat_layout.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tessera/base/checked_math.h"
#include "tessera/dbuffer/flat_packing.h"

namespace tessera {
namespace {

constexpr int64_t kTensorAlignBytes = 16;
constexpr int64_t kPartAlignBytes = 128;
constexpr int64_t kWidestElementBytes = 8;

absl::Status TooLarge(const FlatLayout::Tensor& tensor, int64_t ranks) {
  return absl::InvalidArgumentError(
      absl::StrCat("dbuffer: the flat layout over ", ranks,
                   " ranks is larger than int64 can count, from tensor '",
                   tensor.name, "' ", tensor.shape.ToString(), " on"));
}

// In units of kTensorAlignBytes, of `align` elements: tensors and parts begin
// at multiples of it, so that what lies between is a multiple, too.
internal::PackedTensor ToPack(const FlatLayout::Tensor& tensor, int64_t align) {
  const int64_t granule = tensor.granularity.ElementsOf(tensor.shape);
  const int64_t size = CeilDiv(tensor.shape.num_elements(), align);
  // The least common multiple of `granule` and `align`, in these units.
  const int64_t cut = granule / std::gcd(granule, align);
  return {.size = size, .granule = std::min(cut, size)};
}

}  // namespace

absl::StatusOr<FlatLayout> FlatLayout::Create(absl::Span<const Tensor> tensors,
                                              int64_t ranks, DType narrowest) {
  if (tensors.empty()) {
    return absl::InvalidArgumentError(
        "dbuffer: a flat layout wants at least one tensor, found none");
  }
  if (ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: a flat layout wants at least one rank, found ", ranks));
  }
  const int64_t align = kTensorAlignBytes / SizeOf(narrowest);
  const int64_t part_unit = kPartAlignBytes / kTensorAlignBytes;
  // In these units: what all parts together may be, in the widest dtype.
  const int64_t max_size = INT64_MAX / kWidestElementBytes / align;
  FlatLayout layout;
  layout.ranks_ = ranks;
  layout.tensors_.assign(tensors.begin(), tensors.end());
  std::vector<internal::PackedTensor> to_pack;
  int64_t size = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.shape.num_elements() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dbuffer: tensor '", tensor.name, "' ", tensor.shape.ToString(),
          " has no elements, want at least one"));
    }
    to_pack.push_back(ToPack(tensor, align));
    size = SaturatingAdd(size, to_pack.back().size);
    if (size > max_size) return TooLarge(tensor, ranks);
    layout.tensor_elements_ += tensor.shape.num_elements();
  }
  const std::optional<internal::Packing> packing =
      internal::PackTensors(to_pack, ranks, part_unit, max_size / ranks);
  if (!packing.has_value()) return TooLarge(tensors.back(), ranks);
  for (int64_t offset : packing->offsets) {
    layout.offsets_.push_back(offset * align);
  }
  layout.per_rank_elements_ = packing->part_size * align;
  layout.per_rank_bound_ = packing->part_size_bound * align;
  layout.memory_order_.resize(tensors.size());
  absl::c_iota(layout.memory_order_, 0);
  absl::c_sort(layout.memory_order_, [&](int a, int b) {
    return layout.offsets_[a] < layout.offsets_[b];
  });
  return layout;
}

Interval FlatLayout::extent(int i) const {
  return {offsets_[i], offsets_[i] + tensors_[i].shape.num_elements()};
}

int64_t FlatLayout::granule(int i) const {
  return tensors_[i].granularity.ElementsOf(tensors_[i].shape);
}

std::vector<Interval> FlatLayout::Padding() const {
  std::vector<Interval> padding;
  int64_t begin = 0;
  const auto pad_to = [&](int64_t end) {
    if (begin < end) padding.push_back({begin, end});
  };
  for (int i : memory_order_) {
    pad_to(extent(i).begin);
    begin = extent(i).end;
  }
  pad_to(num_elements());
  return padding;
}

std::string FlatLayout::ToTable() const {
  size_t name_width = sizeof("tensor") - 1;
  size_t shape_width = sizeof("shape") - 1;
  for (const Tensor& t : tensors_) {
    name_width = std::max(name_width, t.name.size());
    shape_width = std::max(shape_width, t.shape.ToString().size());
  }
  const auto row = [&](absl::string_view name, absl::string_view shape,
                       absl::string_view granularity, absl::string_view offset,
                       absl::string_view elements) {
    return absl::StrFormat(
        "%-*s  %-*s  %-11s  %14s  %14s\n", static_cast<int>(name_width), name,
        static_cast<int>(shape_width), shape, granularity, offset, elements);
  };
  std::string table = row("tensor", "shape", "cut by", "offset", "elements");
  for (int i = 0; i < num_tensors(); ++i) {
    const Tensor& t = tensors_[i];
    absl::StrAppend(
        &table, row(t.name, t.shape.ToString(), t.granularity.ToString(),
                    absl::StrCat(offset(i)), absl::StrCat(extent(i).size())));
  }
  absl::StrAppendFormat(
      &table, "%d ranks, %d elements per rank, padding %d elements (%.2f%%)\n",
      ranks_, per_rank_elements_, padding_elements(),
      100.0 * static_cast<double>(padding_elements()) /
          static_cast<double>(tensor_elements_));
  return table;
}

}  // namespace tessera
