#include "tessera/tensor/index.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {

std::string Interval::ToString() const {
  return absl::StrCat("[", begin, ",", end, ")");
}

absl::StatusOr<ExtentSplit> ExtentSplit::Explicit(
    absl::Span<const int64_t> sizes) {
  if (sizes.empty()) {
    return absl::InvalidArgumentError(
        "tensor: a split needs at least one size");
  }
  std::vector<int64_t> ends;
  ends.reserve(sizes.size());
  int64_t end = 0;
  for (int64_t size : sizes) {
    if (size < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor: size ", size, " of a split is negative"));
    }
    const std::optional<int64_t> next = CheckedAdd(end, size);
    if (!next.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor: sizes of a split add up to more than int64 holds, at ", end,
          " + ", size));
    }
    end = *next;
    ends.push_back(end);
  }
  ExtentSplit split;
  split.ends_ = std::make_shared<const std::vector<int64_t>>(std::move(ends));
  return split;
}

std::string ExtentSplit::ToString() const {
  if (is_ceil()) return "ceil";
  int64_t begin = 0;
  return absl::StrCat("(",
                      absl::StrJoin(*ends_, ",",
                                    [&begin](std::string* out, int64_t end) {
                                      absl::StrAppend(out, end - begin);
                                      begin = end;
                                    }),
                      ")");
}

}  // namespace tessera
