#include "tessera/dbuffer/flat_layout.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tessera/base/checked_math.h"

namespace tessera {
namespace {

constexpr int64_t kTensorAlignBytes = 16;
constexpr int64_t kPartAlignBytes = 128;
constexpr int64_t kWidestElementBytes = 8;

// The least multiple of `unit` of which `ranks` hold `elements`, or nullopt
// where the bytes of all parts, in the widest dtype, do not fit int64.
std::optional<int64_t> PartSize(int64_t elements, int64_t ranks, int64_t unit) {
  const std::optional<int64_t> part =
      CheckedRoundUp(CeilDiv(elements, ranks), unit);
  if (!part.has_value()) return std::nullopt;
  const std::optional<int64_t> whole = CheckedMul(*part, ranks);
  if (!whole.has_value() ||
      !CheckedMul(*whole, kWidestElementBytes).has_value()) {
    return std::nullopt;
  }
  return part;
}

absl::Status TooLarge(const FlatLayout::Tensor& tensor, int64_t ranks) {
  return absl::InvalidArgumentError(
      absl::StrCat("dbuffer: the flat layout over ", ranks,
                   " ranks is larger than int64 can count, from tensor '",
                   tensor.name, "' ", tensor.shape.ToString(), " on"));
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
  const int64_t unit = kPartAlignBytes / SizeOf(narrowest);
  FlatLayout layout;
  layout.ranks_ = ranks;
  layout.tensors_.assign(tensors.begin(), tensors.end());
  int64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t elements = tensor.shape.num_elements();
    const std::optional<int64_t> offset = CheckedRoundUp(end, align);
    if (!offset.has_value()) return TooLarge(tensor, ranks);
    const std::optional<int64_t> next = CheckedAdd(*offset, elements);
    if (!next.has_value()) return TooLarge(tensor, ranks);
    const std::optional<int64_t> part = PartSize(*next, ranks, unit);
    if (!part.has_value()) return TooLarge(tensor, ranks);
    end = *next;
    layout.offsets_.push_back(*offset);
    layout.per_rank_elements_ = *part;
    layout.tensor_elements_ += elements;
  }
  return layout;
}

Interval FlatLayout::extent(int i) const {
  return {offsets_[i], offsets_[i] + tensors_[i].shape.num_elements()};
}

std::vector<Interval> FlatLayout::Padding() const {
  std::vector<Interval> padding;
  int64_t begin = 0;
  const auto pad_to = [&](int64_t end) {
    if (begin < end) padding.push_back({begin, end});
  };
  for (int i = 0; i < num_tensors(); ++i) {
    // What lies in front of a tensor without elements joins what lies behind.
    if (extent(i).empty()) continue;
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
                       absl::string_view offset, absl::string_view elements) {
    return absl::StrFormat(
        "%-*s  %-*s  %14s  %14s\n", static_cast<int>(name_width), name,
        static_cast<int>(shape_width), shape, offset, elements);
  };
  std::string table = row("tensor", "shape", "offset", "elements");
  for (int i = 0; i < num_tensors(); ++i) {
    absl::StrAppend(
        &table, row(tensors_[i].name, tensors_[i].shape.ToString(),
                    absl::StrCat(offset(i)), absl::StrCat(extent(i).size())));
  }
  const double percent = tensor_elements_ == 0
                             ? 0.0
                             : 100.0 * static_cast<double>(padding_elements()) /
                                   static_cast<double>(tensor_elements_);
  absl::StrAppendFormat(
      &table, "%d ranks, %d elements per rank, padding %d elements (%.2f%%)\n",
      ranks_, per_rank_elements_, padding_elements(), percent);
  return table;
}

}  // namespace tessera
