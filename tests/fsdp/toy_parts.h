#ifndef TESSERA_TESTS_FSDP_TOY_PARTS_H_
#define TESSERA_TESTS_FSDP_TOY_PARTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/fsdp/data_parallel_axes.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/testing/gradient_oracle.h"
#include "tests/fsdp/toy_run.h"

// What toys under Tessera and their oracle have in common.

namespace tessera::testing::toy {

int64_t Elements(const ToyParameter& parameter);

// Element i of a dense view.
double ReadWide(const TensorView& view, int64_t i);
void WriteElement(const TensorView& view, int64_t i, double value);

bool SameBits(double a, double b);

struct Dtypes {
  DType wire;
  DType accumulation;
  DType main_weight;
};
Dtypes DtypesOf(const ToyRun& run);

// A dense buffer of one dtype.
class Values {
 public:
  Values(DType dtype, int64_t elements)
      : bytes_(elements * SizeOf(dtype)), dtype_(dtype), elements_(elements) {}
  TensorView view() {
    return TensorView::Flat(bytes_.data(), dtype_, elements_);
  }
  std::vector<double> ToDoubles() {
    std::vector<double> doubles;
    for (int64_t i = 0; i < elements_; ++i) {
      doubles.push_back(ReadWide(view(), i));
    }
    return doubles;
  }

 private:
  std::vector<std::byte> bytes_;
  DType dtype_;
  int64_t elements_;
};

template <typename Visit>
void ForEachParameter(const ToyRun& run, Visit visit) {
  for (int u = 0; u < static_cast<int>(run.units.size()); ++u) {
    for (int p = 0; p < static_cast<int>(run.units[u].parameters.size()); ++p) {
      visit(u, p, Elements(run.units[u].parameters[p]));
    }
  }
}

ToyValues EmptyValues(const ToyRun& run);

// How one unit of a run is data-parallel.
struct Parallel {
  DeviceMesh mesh;
  internal::DataParallelAxes axes;
  UnitPlacements placements;
  double grad_divisor;

  // The rank's place in the group that shares its gradients: row-major.
  int PlaceOf(int rank) const;
  GradientOracle::Options OracleOptions(const ToyRun& run) const;
};
Parallel ParallelOf(const ToyRun& run, const ToyUnit& unit);

// The data-parallel axes of a run.
std::vector<std::string> AxesOf(const ToyRun& run);

Layout LayoutOf(const DeviceMesh& mesh, DType dtype,
                const ToyParameter& parameter);

// The row-major indices into the whole tensor of what a rank holds, in order.
std::vector<int64_t> IndicesOf(const Layout& layout, int rank);

// Hyperparameters of a run's parameters: those with several dims, then those
// with one.
std::vector<SgdHyperparameters> SgdGroups(const ToyRun& run);
std::vector<AdamWHyperparameters> AdamWGroups(const ToyRun& run);
int GroupOf(const ToyParameter& parameter);

// What every element depends on all others in: momentum, moved from the end to
// the front, over its norm.
template <typename T>
void UpdateWhole(double learning_rate, int64_t step, const TensorView& gradient,
                 T* weight, T* momentum) {
  const int64_t n = gradient.num_elements();
  T norm = 1;
  for (int64_t i = 0; i < n; ++i) {
    momentum[i] = momentum[i] / 2 + static_cast<T>(ReadWide(gradient, i));
    norm += std::abs(momentum[i]) / static_cast<T>(step);
  }
  for (int64_t i = 0; i < n; ++i) {
    weight[i] -= static_cast<T>(learning_rate) * momentum[n - 1 - i] / norm;
  }
}

}  // namespace tessera::testing::toy

#endif  // TESSERA_TESTS_FSDP_TOY_PARTS_H_
