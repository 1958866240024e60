#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include "tessera/base/checked_math.h"
#include "tessera/redistribute/edges.h"

namespace tessera::internal {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// The least sum of `count` factors of at least 2 with a product of at least
// 2^`bits`.
int64_t LeastSumOfFactors(int bits, int count) {
  const int64_t product = int64_t{1} << bits;
  const auto power = [](int64_t base, int exponent) {
    int64_t result = 1;
    for (int i = 0; i < exponent; ++i) result = SaturatingMul(result, base);
    return result;
  };
  // The least factor that suffices, some of them then one smaller.
  int64_t factor = int64_t{1} << (bits / count);
  while (power(factor, count) < product) ++factor;
  factor = std::max<int64_t>(factor, 2);
  int smaller = 0;
  while (factor > 2 && smaller < count &&
         SaturatingMul(power(factor - 1, smaller + 1),
                       power(factor, count - smaller - 1)) >= product) {
    ++smaller;
  }
  return count * factor - smaller;
}

}  // namespace

void LayoutGraph::AddBounds() {
  for (int i = 0; i < num_axes(); ++i) by_size_.push_back(i);
  std::sort(
      by_size_.axes.begin(), by_size_.axes.begin() + by_size_.size,
      [&](uint8_t a, uint8_t b) { return axes_[a].size < axes_[b].size; });
  all_halve_ =
      !has_ragged_ && std::has_single_bit(static_cast<uint64_t>(num_ranks_)) &&
      absl::c_all_of(extents_,
                     [&](int64_t extent) { return extent % num_ranks_ == 0; });
  for (int bits = 0; int64_t{1} << bits <= num_ranks_; ++bits) {
    least_latencies_.push_back(bits == 0 ? 0 : LeastLatency(bits));
  }
}

// What a rank shall hold depends on what other ranks hold. In a step in which
// it gets m messages, the ranks that it knows of become m + 1 times as many.
int64_t LayoutGraph::LeastLatency(int bits) const {
  int64_t least = kMax;
  // Every launch has a hop.
  const int64_t per_launch = SaturatingAdd(launch_ps_, least_latency_ps_);
  for (int launches = 1; launches <= bits; ++launches) {
    if (SaturatingMul(launches, per_launch) >= least) break;
    const int64_t hops = LeastSumOfFactors(bits, launches) - launches;
    least =
        std::min(least, SaturatingAdd(SaturatingMul(launches, launch_ps_),
                                      SaturatingMul(hops, least_latency_ps_)));
  }
  return least;
}

// A rank that holds the most afterwards finds at itself, and at any other, no
// more of it, dim by dim, than a rank holds before and after.
int64_t LayoutGraph::LeastExchange(const CutLayout& from,
                                   const CutLayout& to) const {
  const int64_t held = to.num_elements;
  int64_t shared = 1;
  const CutLayout::Dim* of_to = to.dims.data();
  for (const CutLayout::Dim& of_from : from.dims) {
    shared *= std::min(of_from.piece, of_to++->piece);
  }
  if (held == shared) return SaturatingAdd(launch_ps_, least_latency_ps_);
  int64_t time = launch_ps_;
  Share needed = {held, CeilDiv(held, shared)};
  for (const Tier& tier : tiers_) {
    // At most, of the ranks that this tier and slower ones do not separate.
    const Share found = {
        std::min(needed.elements, SaturatingMul(tier.sharers, shared)),
        std::min(needed.pieces, tier.sharers)};
    const int64_t messages = needed.pieces - found.pieces;
    const int64_t bytes = (needed.elements - found.elements) * element_size_;
    const int64_t latency =
        latencies_descend_ ? tier.link.latency_ps : least_latency_ps_;
    time = SaturatingAdd(time, SaturatingMul(messages, latency));
    time = SaturatingAdd(time, tier.rate.LeastTimeFor(bytes));
    needed = found;
  }
  return time;
}

LayoutGraph::Changes LayoutGraph::ChangesOf(const CutLayout& from,
                                            const CutLayout& to, AxisMask axes,
                                            AxisMask refilled) const {
  const AxisMask kept = from.partial & to.partial & ~refilled;
  Changes changes;
  changes.filled = to.partial & ~kept & axes;
  changes.sharers = GroupSize(changes.filled);
  changes.keepers = GroupSize(kept & axes);
  changes.addends = GroupSize(from.partial & ~kept & axes);
  if (changes.is_reduced()) {
    const AxisMask all = (AxisMask{1} << num_axes()) - 1;
    changes.copies = GroupSize(all & ~to.partial & ~to.sharded & axes);
  }
  return changes;
}

LayoutGraph::Need LayoutGraph::NeedOf(const Overlap& overlap,
                                      const Changes& changes) const {
  if (has_ragged_) {
    const Share all = {ragged_elements_, 1};
    return {.held = all, .found = changes.is_reduced() ? Share() : all};
  }
  if (changes.is_reduced()) {
    if (overlap.IsEven()) return {.held = overlap.Most(), .all_alike = true};
    return {.held = overlap.FoundAt(overlap.NeedyRank(), kNoAxes)};
  }
  const AxisMask own = kAllAxes & ~changes.filled;
  const Overlap::Finding least = overlap.Least(own);
  if (least.is_exact) {
    return {.held = overlap.Most(),
            .found = least.share,
            .most_found = overlap.MostFound(own),
            .all_alike = true};
  }
  const PackedCoords coords = overlap.NeedyRank();
  return {.held = overlap.FoundAt(coords, kNoAxes),
          .found = overlap.FoundAt(coords, own)};
}

LayoutGraph::Need LayoutGraph::NeedTogether(const Overlap& overlap,
                                            const CutLayout& from,
                                            const CutLayout& to,
                                            AxisMask within,
                                            const Changes& changes) const {
  if (has_ragged_) return NeedOf(overlap, changes);
  const AxisMask own = within & ~changes.filled;
  if (overlap.IsEven()) {
    const int64_t held = overlap.HeldTogether(own);
    if (changes.is_reduced()) return {.held = {held, 1}};
    return {.held = {held, 1}, .found = {overlap.FoundTogether(own, held), 1}};
  }
  const CutLayout end = Cut(WithoutMinorCuts(to.layout, within));
  const Overlap joined = OverlapOf(from, end);
  const PackedCoords coords = joined.NeedyRank();
  const Share held = joined.FoundAt(coords, kNoAxes);
  if (changes.is_reduced()) return {.held = held};
  return {.held = held, .found = joined.FoundAt(coords, own)};
}

// Whatever the way, addends - 1 receipts bring the addends of an element
// together, and one more makes each other copy. Each of the keepers has
// elements of its own.
int64_t LayoutGraph::LeastReduced(const Changes& changes) const {
  if (!changes.is_reduced()) return 0;
  const int64_t all = has_ragged_ ? ragged_elements_ : num_elements_;
  return SaturatingMul(all, changes.addends + changes.copies - 2) /
         (num_ranks_ / changes.keepers);
}

int64_t LayoutGraph::LeastReceived(const Need& need, const Changes& changes,
                                   int64_t ranks) const {
  if (need.held.elements == 0) return 0;
  const int64_t missing = need.held.elements - need.found.elements;
  return std::max(missing / SaturatingMul(ranks, changes.sharers),
                  LeastReduced(changes));
}

// At any time the sharers know some elements of those that they shall hold.
// Along the axes not filled so far, they may have shared them out. So a fill
// writes at least its share of what is known then, and to learn more takes
// receiving a share of it, which the later fills make larger. Reductions take
// no part in this: a rank receives in one no less than it holds after it, so
// that what was known before the last of them does not count.
//
// The shares are the smallest where the smallest axes are filled first. The
// time is linear in what is known at each fill, so that sharers best learn all
// that they do not know at once, before one of the fills or after the last.
// Until then they know what they found, or less: a fill writes the part of the
// tensor that ranks hold on average, in any case.
LayoutGraph::Filling LayoutGraph::LeastFilling(int64_t all, int64_t found,
                                               const Changes& changes) const {
  if (changes.filled == kNoAxes) return {};
  const int64_t covered = std::min(
      all, num_elements_ / (num_ranks_ / (changes.sharers * changes.keepers)));
  Filling filling = FillingFrom(covered, all, found, changes);
  if (found > covered) {
    const Filling from_found = FillingFrom(found, all, found, changes);
    filling.time = std::min(filling.time, from_found.time);
  }
  return filling;
}

LayoutGraph::Filling LayoutGraph::FillingFrom(int64_t known, int64_t all,
                                              int64_t found,
                                              const Changes& changes) const {
  int64_t sharers = changes.sharers;
  const auto time_for = [&](const Rate& rate, int64_t elements) {
    return rate.LeastTimeFor(elements / sharers * element_size_);
  };
  // Of ways on which sharers know all now, or as much as at first.
  int64_t first = time_for(best_rate_, std::max<int64_t>(known - found, 0));
  int64_t least = SaturatingAdd(first, time_for(best_rate_, all - known));
  int64_t written = 0;
  for (int i : by_size_.span()) {
    if ((changes.filled >> i & 1) == 0) continue;
    sharers /= axes_[i].size;
    const int64_t fill = time_for(memory_rate_, known);
    written = SaturatingAdd(written, fill);
    first = SaturatingAdd(first, fill);
    least = std::min(SaturatingAdd(least, time_for(memory_rate_, all)),
                     SaturatingAdd(first, time_for(best_rate_, all - known)));
  }
  return {least, written};
}

int64_t LayoutGraph::LeastTransfer(const Ends& ends) const {
  const Need& need = ends.need;
  const int64_t held = need.held.elements;
  const int64_t found = need.found.elements;
  const Filling filling = LeastFilling(held, found, ends.changes);
  int64_t least = std::max(
      filling.time,
      SaturatingAdd(TimeFor(best_rate_, LeastReceived(need, ends.changes, 1)),
                    filling.written));
  if (found == held) return least;
  for (size_t i = 0; i + 1 < tiers_.size(); ++i) {
    least = std::max(least, LeastTransfer(ends, tiers_[i], filling));
  }
  return least;
}

int64_t LayoutGraph::LeastTransfer(const Ends& ends, const Tier& tier,
                                   const Filling& filling) const {
  const Changes& changes = ends.changes;
  const Need& need = ends.need;
  const int64_t held = need.held.elements;
  const Changes slow =
      ChangesOf(ends.from, ends.to, tier.within, ends.refilled);
  const Need group =
      NeedTogether(ends.overlap, ends.from, ends.to, tier.within, slow);
  const int64_t share = LeastReceived(group, slow, tier.sharers);

  // Over all links. The ranks of the group may find more than the rank that
  // `filling` is for, and where some of them find nothing, all do.
  int64_t received = 0;
  int64_t filled = 0;
  if (slow.is_reduced() && ends.overlap.IsEven()) {
    received = LeastReduced(changes);
  }
  if (need.all_alike) {
    const int64_t found = group.found.elements == 0 ? 0 : need.most_found;
    received = std::max(received, (held - found) / changes.sharers);
    filled = found == need.found.elements
                 ? filling.time
                 : LeastFilling(held, found, changes).time;
  }
  const int64_t rest = std::max<int64_t>(received - share, 0);
  int64_t fast = SaturatingAdd(TimeFor(best_rate_, rest), filling.written);
  if (filled > 0)
    fast = std::max(fast, filled - TimeFor(best_rate_, share) - 1);
  return SaturatingAdd(TimeFor(tier.rate, share), fast);
}

int64_t LayoutGraph::TimeFor(const Rate& rate, int64_t elements) const {
  return rate.LeastTimeFor(SaturatingMul(elements, element_size_));
}

int64_t LayoutGraph::LeastTime(const CutLayout& from, const CutLayout& to,
                               const Overlap& overlap,
                               AxisMask refilled) const {
  const Changes changes = ChangesOf(from, to, kAllAxes, refilled);
  const Need need = NeedOf(overlap, changes);
  if (need.held.elements == 0) return 0;
  int64_t ranks = need.held.pieces - need.found.pieces + 1;
  if (changes.is_reduced()) {
    ranks =
        SaturatingMul(std::max<int64_t>(need.held.pieces, 1), changes.addends);
  }
  ranks = CeilDiv(ranks, changes.sharers * changes.keepers);
  const size_t bits = std::bit_width(static_cast<uint64_t>(ranks)) - 1;
  const int64_t latency =
      least_latencies_[std::min(bits, least_latencies_.size() - 1)];
  const Ends ends = {from, to, overlap, refilled, changes, need};
  return SaturatingAdd(latency, LeastTransfer(ends));
}

int64_t LayoutGraph::LeastTime(const CutLayout& from,
                               const CutLayout& to) const {
  const Overlap overlap = OverlapOf(from, to);
  // What is Partial before and after stays so, or is reduced and filled again.
  const AxisMask kept = from.partial & to.partial;
  int64_t least = LeastTime(from, to, overlap, kNoAxes);
  for (AxisMask refilled = kept; refilled != kNoAxes;
       refilled = (refilled - 1) & kept) {
    least = std::min(least, LeastTime(from, to, overlap, refilled));
  }
  return least;
}

}  // namespace tessera::internal
