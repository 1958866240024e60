#include "tessera/placement/placement.h"

#include <algorithm>
#include <cstddef>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

// Where piece `index` begins before it is clipped. The product may exceed
// int64: a large mesh, or a cut of a buffer far larger than the tensor.
absl::int128 AffineBound(int64_t first, int64_t step, int64_t index) {
  return absl::int128(first) + absl::int128(step) * absl::int128(index);
}

}  // namespace

absl::StatusOr<RaggedCut> RaggedCut::Explicit(
    absl::Span<const int64_t> bounds) {
  if (bounds.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement: a ragged cut has ", bounds.size(),
                     " bounds, want at least 2"));
  }
  if (bounds.front() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement: the first bound of a ragged cut is ",
                     bounds.front(), ", want 0"));
  }
  for (size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] < bounds[i - 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement: the bounds of a ragged cut descend from ",
                       bounds[i - 1], " to ", bounds[i]));
    }
  }
  RaggedCut cut;
  cut.bounds_ = std::make_shared<const std::vector<int64_t>>(bounds.begin(),
                                                             bounds.end());
  return cut;
}

absl::StatusOr<RaggedCut> RaggedCut::Affine(int64_t first, int64_t step) {
  if (first > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placement: an affine cut begins at ", first, ", want at most 0"));
  }
  if (step < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placement: an affine cut has step ", step, ", want at least 1"));
  }
  RaggedCut cut;
  cut.first_ = first;
  cut.step_ = step;
  return cut;
}

Interval RaggedCut::Piece(int64_t index, int64_t extent) const {
  const auto bound = [&](int64_t i) {
    const absl::int128 unclipped =
        is_affine() ? AffineBound(first_, step_, i) : (*bounds_)[i];
    return static_cast<int64_t>(std::clamp<absl::int128>(unclipped, 0, extent));
  };
  const Interval piece{bound(index), bound(index + 1)};
  return piece.empty() ? Interval{extent, extent} : piece;
}

int64_t RaggedCut::LargestPiece(int64_t parts, int64_t extent) const {
  int64_t first = 0;
  int64_t last = parts - 1;
  if (is_affine()) {
    // The first piece that holds anything may begin in front of the extent.
    // Of the pieces behind it none is larger than the next.
    const absl::int128 in_front = -absl::int128(first_) / step_;
    first = static_cast<int64_t>(std::min<absl::int128>(in_front, last));
    last = std::min(first + 1, last);
  }
  int64_t largest = 0;
  for (int64_t i = first; i <= last; ++i) {
    largest = std::max(largest, Piece(i, extent).size());
  }
  return largest;
}

bool RaggedCut::Covers(int64_t parts, int64_t extent) const {
  if (is_affine()) {
    return extent == 0 || AffineBound(first_, step_, parts) >= extent;
  }
  return parts + 1 == static_cast<int64_t>(bounds_->size()) &&
         bounds_->back() >= extent;
}

std::string RaggedCut::ToString() const {
  if (is_affine()) return absl::StrCat(first_, "+", step_);
  return absl::StrJoin(*bounds_, ",");
}

bool operator==(const RaggedCut& a, const RaggedCut& b) {
  return a.first_ == b.first_ && a.step_ == b.step_ && a.bounds() == b.bounds();
}

std::string Placement::ToString() const {
  if (is_shard()) return absl::StrCat("S(", dim(), ")");
  if (is_partial()) return absl::StrCat("P(", ReduceOpName(op()), ")");
  if (is_ragged()) {
    return absl::StrCat("Ragged(", cut().ToString(), ")[", position(), "]");
  }
  return "R";
}

}  // namespace tessera
