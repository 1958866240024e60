#ifndef TESSERA_FSDP_PLACEMENTS_H_
#define TESSERA_FSDP_PLACEMENTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/dbuffer/buffer_placement.h"

namespace tessera {

// Where the state of a unit lives along each data-parallel axis, in the
// caller's order (outer before inner). These three lists say everything that
// names such as "FSDP" or "HSDP" stand for:
//
//   strategy              parameter  gradient   optimizer
//   DDP                   R          P          R
//   ZeRO-1                R          P          Flat
//   ZeRO-2                R          Flat       Flat
//   ZeRO-3, FSDP          Flat       Flat       Flat
//   HSDP  (outer, inner)  R, Flat    P, Flat    R, Flat
//   HFSDP (outer, inner)  R, Flat    P, Flat    Flat, Flat
struct UnitPlacements {
  BufferPlacements parameter;  // R or Flat: the weights that units gather
  BufferPlacements gradient;   // P(sum) or Flat: between microbatches
  BufferPlacements optimizer;  // R or Flat: main weights, final gradients

  // "param=[R, Flat] grad=[P(sum), Flat] optim=[R, Flat]"
  std::string ToString() const;
  friend bool operator==(const UnitPlacements&,
                         const UnitPlacements&) = default;
};

// The inverse of ToString: the three lists in that order, white space between
// the parts. ERRORS: InvalidArgument, quoting the part that does not parse.
absl::StatusOr<UnitPlacements> ParseUnitPlacements(absl::string_view text);

// The rows of the table above by name, for any number of axes: "ddp", "zero1",
// "zero2", "zero3", "fsdp" treat all axes alike; "hsdp" and "hfsdp" treat the
// last axis as inner and all before it as outer.
// ERRORS: InvalidArgument for another name, listing these.
absl::StatusOr<UnitPlacements> PlacementsFor(absl::string_view strategy,
                                             int num_axes);
std::vector<absl::string_view> StrategyNames();

// OK if a unit can run with these placements on the data-parallel axes `axes`,
// outer before inner, that cut in `cut_order`, a permutation of them:
//   1. each list has one entry per axis;
//   2. parameter and optimizer are R or Flat, gradient is P(sum) or Flat
//      (a replicated gradient would be reduced on every microbatch for nothing
//      that P does not give);
//   3. in each list the Flat axes are a prefix of the cut order: so every rank
//      holds one contiguous range, and one list's lies within another's;
//   4. where the gradient is Flat the optimizer is Flat: final gradients are
//      never gathered.
// docs/placements.md shows what that means for every triple on one and two
// axes. ERRORS: InvalidArgument naming the list, what it holds and the axis.
absl::Status ValidatePlacements(const UnitPlacements& placements,
                                absl::Span<const std::string> axes,
                                absl::Span<const std::string> cut_order);

}  // namespace tessera

#endif  // TESSERA_FSDP_PLACEMENTS_H_
