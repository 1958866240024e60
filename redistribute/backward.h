#ifndef TESSERA_REDISTRIBUTE_BACKWARD_H_
#define TESSERA_REDISTRIBUTE_BACKWARD_H_

#include "absl/status/statusor.h"
#include "tessera/placement/layout.h"

namespace tessera {

// How the gradient of a redistribution moves: from `source`, the layout of the
// gradient of what was redistributed to, to `target`, that of what was
// redistributed from. All values are multiplied by `scale`, before or after.
struct GradientLayouts {
  Layout source;
  Layout target;
  double scale = 1;
};

// The backward pass of a redistribution from `source` to `target`.
//
// What a rank holds as gradient is the derivative of the loss by what it holds
// as value. A tensor X with gradient G = dL/dX that ranks hold as
//
//   P(sum)     X = sum_r x_r       has dL/dx_r = G on every rank: R
//   P(avg)     X = sum_r x_r / n   has dL/dx_r = G / n on every rank: R
//   S, Ragged  x_r = X[piece r]    has dL/dx_r = G[piece r]: the same cut
//   R          x_r = X             has G on every rank: replicas are copies of
//                                  one variable, they change together: R
//
// (n is the size of the axis.) Either end holds the G of the one tensor, at the
// target y of the redistribution as G / a(target), at its source x as
// G / a(source), with a the product of the sizes of the axes that are P(avg).
// So the gradient of y, from the layout above for `target`, moves to the one
// for `source` and is multiplied by a(target) / a(source): 1/n for P(avg) -> R.
// These layouts have no Partial axis. For sums they are those of DTensor.
//
// ERRORS: Unimplemented, naming axis and op, where an end is Partial by an op
// other than sum and avg: such redistributions are not linear. Whether there
// is a redistribution between the two layouts is left to MakePlan.
absl::StatusOr<GradientLayouts> BackwardLayouts(const Layout& source,
                                                const Layout& target);

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_BACKWARD_H_
