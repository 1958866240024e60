#ifndef TESSERA_REDISTRIBUTE_OVERLAP_H_
#define TESSERA_REDISTRIBUTE_OVERLAP_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tessera/redistribute/cut_layout.h"
#include "tessera/redistribute/packed_layout.h"

namespace tessera::internal {

// Of what one rank shall hold: elements, and the pieces of the old layout that
// they come in, replicas counted once.
struct Share {
  int64_t elements = 0;
  int64_t pieces = 0;

  friend bool operator==(const Share&, const Share&) = default;
};

// One coordinate per packed axis.
using PackedCoords = std::array<int64_t, kMaxMovingAxes>;

// Where ranks find, in one layout, what they shall hold in another. What is
// Partial counts as R. Ranks may look around: at themselves, or at all ranks
// that have their own coordinates along some axes, `own`, and any along the
// others.
//
// A short-lived value. No work grows with axis sizes.
// LIFETIME: borrows all that it is made of.
class Overlap {
 public:
  // `axis_sizes`: one per packed axis, those of both layouts.
  Overlap(absl::Span<const int64_t> axis_sizes, const CutLayout& before,
          const CutLayout& after);

  // What the rank at these coordinates shall hold, and what of it is found at
  // the ranks with its own coordinates along `own`. Exact.
  Share FoundAt(const PackedCoords& coords, AxisMask own) const;

  // The most that a rank shall hold; and the least, over all ranks, that one
  // finds of what it shall hold. In general no rank needs more from others than
  // the difference. It is exact where all cuts of the dims that differ are
  // even, of any two pieces of them one divides the other, and so do the cuts
  // along `own`; the same rank then finds the least for all sets `own` of which
  // one holds the other.
  struct Finding {
    Share share;
    bool is_exact = true;
  };
  Share Most() const;
  Finding Least(AxisMask own) const;

  // No rank finds more elements of what it shall hold.
  // REQUIRES: Least(own).is_exact.
  int64_t MostFound(AxisMask own) const;

  // True if all cuts are even, and of the old and the new piece of each dim one
  // divides the other.
  bool IsEven() const;

  // What ranks hold together that have the same coordinates along `own`: the
  // elements that they shall, and what of it, at most, those ranks of some such
  // set have already that lacks the most.
  // REQUIRES: IsEven(); held == HeldTogether(own).
  int64_t HeldTogether(AxisMask own) const;
  int64_t FoundTogether(AxisMask own, int64_t held) const;

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
  // A dim before and after.
  struct Dim {
    Dim(absl::Span<const int64_t> axis_sizes, const CutLayout::Dim& before_in,
        const CutLayout::Dim& after_in);

    const CutLayout::Dim& before;
    const CutLayout::Dim& after;
    int prefix = 0;   // axes that both are first cut by
    bool is_even;     // and of the pieces one divides the other
    Share most = {};  // as Most(), of this dim

    bool differs() const {
      return prefix < before.num_axes || prefix < after.num_axes;
    }
  };

  // With even cuts, the coordinate along an axis is a digit of the index of
  // each element that a rank holds: index / piece % size, where `piece` is what
  // the cut leaves. How an old and a new such digit go together.
  enum class Meeting {
    kApart,    // all pairs of values occur equally often
    kSame,     // one digit of one axis
    kClash,    // at some coordinates the two pieces share no element
    kUnclear,  // none of these
  };
  Meeting MeetingOf(int old_axis, int new_axis) const;
  // How the cut by `old_axis` goes together with the new ones along `axes`: the
  // worst of them, a clash being worst.
  Meeting MeetingOf(const Dim& dim, int old_axis, AxisMask axes) const;
  // Ranks that shall hold what new cuts along `held` leave of an even dim find
  // one of so many equal parts of it along `own`, those that find the least;
  // where this is not exact, one of more; 0 where they find nothing.
  struct Parts {
    int64_t count = 1;
    bool is_exact = true;
  };
  Parts PartsOf(const Dim& dim, AxisMask own, AxisMask held) const;

  int64_t Size(const CutLayout::Dim& dim, int i) const {
    return axis_sizes_[dim.axes[i]];
  }
  Finding Least(const Dim& dim, AxisMask own) const;
  // The smallest piece that the cuts of `dim`, from one on, leave of an extent.
  int64_t LeastPiece(const CutLayout::Dim& dim, int from, int64_t extent) const;
  Share FoundAt(const Dim& dim, const PackedCoords& coords, AxisMask own) const;
  // Of the pieces that the cuts of `dim`, from one on, leave of an extent,
  // those with `coords` along `own`, cut down to [begin, end): elements, and
  // how many are left.
  Share CutDown(const CutLayout::Dim& dim, int from, int64_t extent,
                int64_t begin, int64_t end, const PackedCoords& coords,
                AxisMask own) const;

  absl::Span<const int64_t> axis_sizes_;
  const CutLayout& before_;
  const CutLayout& after_;
  absl::InlinedVector<Dim, 4> dims_;
};

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_OVERLAP_H_
