#ifndef TESSERA_TESTING_GRADIENT_ORACLE_H_
#define TESSERA_TESTING_GRADIENT_ORACLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/placements.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::testing {

// What the main gradient of one parameter must be, bit for bit, computed in
// one process: every (rank, microbatch) gradient is handed in, and they are
// combined in the order that fsdp/context.h documents, with the CPU kernels
// that the local backend uses. There is no communication, no cut and no
// buffer layout here: every simulated rank holds the whole parameter.
//
//   GradientOracle oracle({.axis_sizes = {2, 2}, .placements = hsdp}, n);
//   for (...) oracle.Add(gradients);      // one view per rank
//   oracle.Finalize();
//   oracle.gradient();                    // what every rank must have
//
// Not thread-safe.
class GradientOracle {
 public:
  struct Options {
    // The data-parallel axes, outer before inner.
    std::vector<int> axis_sizes = {};
    // Indices into axis_sizes as they cut; empty: the last cuts first.
    std::vector<int> cut_order = {};
    UnitPlacements placements = {};
    DType wire = DType::kF32;
    DType accumulation = DType::kF32;
    GradientReduction reduction = GradientReduction::kMean;
    double grad_divisor = 1.0;
    // By element: a rank that holds it in the optimizer placements. Needed to
    // add to a finalized value that is Flat along an axis where the gradient
    // placements are P; else it may be empty.
    std::vector<int> owners = {};
  };

  GradientOracle(Options options, int64_t elements);

  // The product of the axes. Ranks are row-major over axis_sizes.
  int num_ranks() const { return static_cast<int>(main_.size()); }

  // One backward on every rank: contributions[r] is what rank r writes, in the
  // wire dtype, contiguous. After Finalize it adds to the finalized value.
  // REQUIRES: one view of the right dtype and size per rank; after Finalize,
  // Options::owners where they are needed.
  void Add(absl::Span<const TensorView> contributions);

  // Reduces over the deferred axes.
  void Finalize();

  void Zero();

  // The final gradient, in the accumulation dtype. REQUIRES: Finalize was the
  // last call.
  TensorView gradient() { return View(main_[0], options_.accumulation); }

 private:
  using Bytes = std::vector<std::byte>;

  TensorView View(Bytes& bytes, DType dtype) const;
  // Index of the rank at `coordinate` of `axis` and `rank`'s place on others.
  int Neighbour(int rank, int axis, int coordinate) const;
  int Coordinate(int rank, int axis) const;
  // Every rank's value becomes the sum along `axis`.
  void ReduceAlong(int axis, DType dtype, std::vector<Bytes>& values) const;
  // The finalized value, partial again along the deferred axes.
  void Reopen();

  Options options_;
  int64_t elements_;
  double scale_;
  std::vector<Bytes> main_;  // per rank
  bool final_ = false;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_GRADIENT_ORACLE_H_
