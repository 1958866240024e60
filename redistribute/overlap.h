#ifndef TESSERA_REDISTRIBUTE_OVERLAP_H_
#define TESSERA_REDISTRIBUTE_OVERLAP_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tessera/redistribute/packed_layout.h"
#include "tessera/tensor/shape.h"

namespace tessera::internal {

// Of what one rank shall hold: elements, and the pieces of the old layout that
// they come in, replicas counted once.
struct Share {
  int64_t elements = 0;
  int64_t pieces = 0;

  friend bool operator==(const Share&, const Share&) = default;
};

// Sets of packed axes.
using AxisMask = uint32_t;
inline constexpr AxisMask kNoAxes = 0;
inline constexpr AxisMask kAllAxes = (AxisMask{1} << kMaxMovingAxes) - 1;

// One coordinate per packed axis.
using PackedCoords = std::array<int64_t, kMaxMovingAxes>;

// Where ranks find, in one layout, what they shall hold in another. What is
// Partial counts as R. Ranks may look around: at themselves, or at all ranks
// that have their own coordinates along some axes, `own`, and any along the
// others.
//
// A short-lived value that borrows nothing. No work grows with axis sizes.
class Overlap {
 public:
  // `axis_sizes`: one per packed axis.
  Overlap(const Dims& extents, absl::Span<const int64_t> axis_sizes,
          const PackedLayout& before, const PackedLayout& after);

  // What the rank at these coordinates shall hold, and what of it is found at
  // the ranks with its own coordinates along `own`. Exact.
  Share FoundAt(const PackedCoords& coords, AxisMask own) const;

  // The most that a rank shall hold; and the least, over all ranks, that one
  // finds of what it shall hold. With IsRegular both are exact; else no rank
  // needs more from others than the difference.
  Share Most() const;
  Share Least(AxisMask own) const;

  // The most elements that a rank has already of what it shall hold, at most.
  int64_t MostFoundAtHome() const;

  // True if all cuts of the dims that differ are even, of any two of them one
  // divides the other, and where ranks look only along some of the axes that
  // cut a dim, those come first or nothing else cuts it afterwards.
  bool IsRegular(AxisMask own) const;

  // The axes on which it depends who needs what: those that cut a dim
  // differently before and after.
  AxisMask DecisiveAxes() const;

  // The axes along which the ranks differ that need something of one another:
  // those that cut a dim otherwise before than after, without the major axes
  // that both begin with.
  AxisMask CrossedAxes() const;

  // The ones among them that cut before: messages go along these.
  AxisMask AxesLeft() const;

  // The coordinates of a rank that needs much from others: 0, but the last
  // ones along axes that cut a dim before and none afterwards.
  PackedCoords NeedyRank() const;

 private:
  struct CutList {
    std::array<uint8_t, kMaxMovingAxes> axes = {};  // major first
    int size = 0;
  };
  struct Dim {
    int dim = 0;
    int64_t extent = 0;
    CutList before;
    CutList after;
    int prefix = 0;         // axes that both lists begin with
    int64_t old_piece = 0;  // extents of the largest pieces
    int64_t new_piece = 0;
    bool is_even = false;  // and of the pieces one divides the other

    bool differs() const { return prefix < before.size || prefix < after.size; }
  };

  // The axes of `list` from one on.
  static AxisMask MaskOf(const CutList& list, int from);
  Dim& DimOf(int dim, int64_t extent);
  int64_t Size(const CutList& list, int i) const {
    return axis_sizes_[list.axes[i]];
  }
  int64_t CellsBehindPrefix(const Dim& dim) const;
  bool IsRegular(const Dim& dim, AxisMask own) const;
  Share Most(const Dim& dim) const;
  Share Least(const Dim& dim, AxisMask own) const;
  Share FoundAt(const Dim& dim, const PackedCoords& coords, AxisMask own) const;
  // Of the pieces that list[from..] cuts an extent into, those with `coords`
  // along `own`, cut down to [begin, end): elements, and how many are left.
  Share CutDown(const CutList& list, int from, int64_t extent, int64_t begin,
                int64_t end, const PackedCoords& coords, AxisMask own) const;

  std::array<int64_t, kMaxMovingAxes> axis_sizes_ = {};
  absl::InlinedVector<Dim, 4> dims_;  // those that are cut
  int64_t whole_ = 1;                 // the product of the others' extents
};

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_OVERLAP_H_
