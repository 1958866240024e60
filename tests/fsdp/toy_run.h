#ifndef TESSERA_TESTS_FSDP_TOY_RUN_H_
#define TESSERA_TESTS_FSDP_TOY_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/context.h"

namespace tessera::testing {

// A model whose "layers" are bare parameters and whose gradients are a function
// of rank, microbatch, step, element and the weight itself, so that every
// rank's data differ and a wrong weight shows in the next gradient.
struct ToyParameter {
  std::string name;
  std::vector<int64_t> extents;
  // Over the mesh, as "[R, S(0)]"; empty: R on every axis.
  std::string layout = {};
};

struct ToyUnit {
  std::string name;
  int parent = -1;  // index of an earlier unit
  std::vector<ToyParameter> parameters;
  // What differs from the run.
  std::optional<std::vector<std::string>> axes = std::nullopt;
  std::optional<UnitPlacements> placements = std::nullopt;
  std::optional<double> grad_divisor = std::nullopt;
};

// What trains a toy. All but plain SGD treat parameters of one dim differently.
enum class ToyOptimizer {
  kSgd,
  kMomentum,
  kNesterov,
  kAdamW,
  kWhole,  // each element by all others, but SGD for parameters of one dim;
           // no layouts of their own for parameters of more
};

struct ToyRun {
  std::string mesh = "dp_outer=2,dp_inner=2";
  std::string strategy = "hsdp";
  std::vector<std::string> axes;  // data-parallel; empty: all
  std::vector<std::string> cut_order;
  // Instead of the strategy's.
  std::optional<UnitPlacements> placements;
  int microbatches = 3;
  int steps = 3;
  ZeroGrad zero_grad = ZeroGrad::kRelease;
  GradientReduction reduction = GradientReduction::kMean;
  double grad_divisor = 1.0;
  double loss_scale = 1.0;  // which the bits do not depend on
  Precision precision;
  DType dtype = DType::kF32;
  ReleaseWeights release = ReleaseWeights::kAfterForward;
  OverlapOptions overlap;
  GradientHooks gradient_hooks;  // of all units
  double learning_rate = 0.125;
  // Gradients are zeroed after so many steps: in between, backwards add to
  // what is final.
  int steps_per_zeroing = 1;
  ToyOptimizer optimizer = ToyOptimizer::kSgd;
  bool integer_gradients = false;  // small integers, independent of weights
  CpuStreams streams = CpuStreams::kInline;
  // Enqueues what the trainer computes, on the host: it reads and writes memory
  // of the device. Null: Stream::Launch, for devices that let it.
  std::function<absl::Status(Stream&, const LaunchDescriptor&, LaunchBody)>
      launch = nullptr;
  std::vector<ToyUnit> units;

  std::string ToString() const;
  // The strategy's, unless they are given.
  UnitPlacements Placements() const;
  bool ZeroesAfter(int step) const;
};

// A root with an odd shape around two blocks whose sizes no rank count divides.
std::vector<ToyUnit> DefaultToyUnits();
// A root around six blocks, two of which have a unit inside.
std::vector<ToyUnit> DeepToyUnits();

// Prefetch of 0 to 3 units, 1 to 3 gradients in flight, on either streams.
std::vector<OverlapOptions> ManyOverlaps();

// Every triple of placements that is legal on `num_axes` axes in the default
// cut order.
std::vector<UnitPlacements> LegalTriples(int num_axes);

// What rank `rank` adds to the gradient of one element in one backward. Ranks
// are counted along the unit's data-parallel axes, so that those which differ
// along the others only have equal data.
struct GradientPlace {
  int rank;
  int step;
  int microbatch;
  int unit;
  int parameter;
  int64_t element;
};
double ToyGradient(const ToyRun& run, const GradientPlace& place,
                   double weight);
double InitialWeight(int unit, int parameter, int64_t element);

// Main weights in f32 or f64 after each step, and the final gradients of each
// step: [step][unit][parameter][element]; weights have one entry more, the
// first being the initial ones.
using ToyValues = std::vector<std::vector<std::vector<double>>>;
struct ToyHistory {
  std::vector<ToyValues> weights;
  std::vector<ToyValues> gradients;
};

// By GradientOracle: the bits that every rank must have.
ToyHistory OracleHistory(const ToyRun& run);
// By plain arithmetic in f64, all contributions in one sum.
ToyHistory BigBatchHistory(const ToyRun& run);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_FSDP_TOY_RUN_H_
