#include "tessera/redistribute/backward.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera {
namespace {

// The layout of the gradient of what has this layout.
absl::StatusOr<Layout> GradientLayout(const Layout& layout) {
  Placements placements(layout.placements().begin(), layout.placements().end());
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (!placements[axis].is_partial()) continue;
    const ReduceOp op = placements[axis].op();
    if (!IsLinear(op)) {
      return absl::UnimplementedError(absl::StrCat(
          "redistribute: want only P(sum) and P(avg) where a gradient is "
          "taken, found P(",
          ReduceOpName(op), ") along axis '", layout.mesh().axis(axis).name,
          "' in ", layout.ToString()));
    }
    placements[axis] = Placement::Replicate();
  }
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    order.push_back({dim, layout.ShardAxes(dim)});
  }
  return layout.With(placements, order);
}

// The product of the sizes of the axes that are P(avg): at most the mesh's.
int64_t AverageDivisor(const Layout& layout) {
  int64_t divisor = 1;
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (layout.placement(axis) == Placement::Partial(ReduceOp::kAvg)) {
      divisor *= layout.mesh().axis(axis).size;
    }
  }
  return divisor;
}

}  // namespace

absl::StatusOr<GradientLayouts> BackwardLayouts(const Layout& source,
                                                const Layout& target) {
  GradientLayouts gradient;
  TESSERA_ASSIGN_OR_RETURN(gradient.source, GradientLayout(target));
  TESSERA_ASSIGN_OR_RETURN(gradient.target, GradientLayout(source));
  gradient.scale = static_cast<double>(AverageDivisor(target)) /
                   static_cast<double>(AverageDivisor(source));
  return gradient;
}

}  // namespace tessera
