#ifndef TESSERA_FSDP_OPTIONS_H_
#define TESSERA_FSDP_OPTIONS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tessera/base/log.h"
#include "tessera/fsdp/placements.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/redistribute/sharded_tensor.h"
#include "tessera/tensor/dtype.h"

namespace tessera {

// What the gradients of the ranks and microbatches add up to.
enum class GradientReduction {
  kMean,  // the sum over N * grad_divisor, N the product of the sizes of the
          // unit's data-parallel axes
  kSum,   // the sum over grad_divisor
};

// What becomes of a parameter whose gradient nobody asked for in a backward.
enum class MissingGradients {
  kZero,   // it counts as zero
  kError,  // AfterBackward fails and names it
};

// The dtypes of a unit's state beside that of its parameters.
struct Precision {
  // Gradients as the trainer writes them and as they are reduced over Flat
  // axes. Default: the parameter's.
  std::optional<DType> wire = std::nullopt;
  // Accumulated gradients, f32 or f64. Default: f64 for f64 parameters, else
  // f32.
  std::optional<DType> accumulation = std::nullopt;
  // Main weights, f32 or f64. Default: as accumulation.
  std::optional<DType> main_weight = std::nullopt;
  // Gradients are multiplied by this before they are reduced over Flat axes,
  // and divided by it behind: below 1 for f16, whose sums overflow where
  // gradients do not. A power of two from 2^-24 to 2^24: where nothing
  // overflows or underflows it changes no bit. Not looked at where no gradient
  // axis is Flat.
  double wire_pre_scale = 1.0;
};

// Which streams communicate beside the one that computes.
enum class CommunicationStreams {
  kSeparate,  // gathers, reductions and finalization on one each: none waits
              // for another, and each has communicators of its own
  kShared,    // one for all: a third of the communicators, and of their memory
};

// How far communication may run beside computation. More of it needs more
// transient memory (PlanWeightSlots, PlanGradientSlots); it never changes a bit
// of any result.
struct OverlapOptions {
  // For how many units, beside the one at work, weights may be gathered ahead.
  // 0: for none, so that computation waits for every gather.
  int prefetch = 1;
  // How many unreduced gradients there may be, one that is written and others
  // that are being reduced, beside those of enclosing units. At least 1: a unit
  // then waits for the reduction of the one before it.
  int gradients_in_flight = 2;
  CommunicationStreams streams = CommunicationStreams::kSeparate;
};

class Communicator;

// A communicator of the caller's along one data-parallel axis of the mesh. It
// serves its own stream; those for other streams are split from it.
struct LentCommunicator {
  std::string axis;
  Communicator* communicator = nullptr;
};

struct FsdpOptions {
  DeviceMesh mesh;
  // For units that do not say otherwise: the data-parallel axes, any axes of
  // the mesh, outer before inner (default: all of them); the order in which
  // they cut, first cut first (default: the last of data_parallel_axes first).
  std::vector<std::string> data_parallel_axes;
  std::vector<std::string> cut_order;
  UnitPlacements placements;
  Precision precision;
  double grad_divisor = 1.0;  // positive, finite
  // For all units.
  GradientReduction reduction = GradientReduction::kMean;
  MissingGradients missing_gradients = MissingGradients::kZero;
  OverlapOptions overlap;
  // Communicators to use; what is not lent is made. They outlive the context.
  std::vector<LentCommunicator> communicators;
  Logger logger;
};

class Stream;
class Unit;

// A parameter of a unit: its index in the order of UnitBuilder::Add.
using ParameterId = int;

// A main gradient as it rests: its layout says along which axes it is Partial.
struct RestingGradient {
  ParameterId parameter = 0;
  ShardedTensor gradient;  // borrowed, until the hook returns
};

// What a trainer does with the gradients of a unit: enqueues on the stream, on
// which they are there and the unit goes on, what reads or changes them; it
// waits for nothing. All parameters that are not frozen, in order.
using GradientHook = std::function<absl::Status(
    const Unit&, absl::Span<const RestingGradient>, Stream&)>;

// Called in the AfterBackward that finalizes. Null: not called. An error is
// sticky, with unit and hook before its message, and ends the waits of other
// ranks for this one.
struct GradientHooks {
  // At the gradient placements: all backwards are added up, but not yet over
  // the axes that are Partial.
  GradientHook before_finalize = nullptr;
  // At the optimizer placements: as the optimizer will see them.
  GradientHook after_finalize = nullptr;
};

// When the gathered weights of a unit are given up.
enum class ReleaseWeights {
  kAfterForward,   // and gathered again before backward
  kAfterBackward,  // between microbatches: once no forward waits for its
                   // backward
  kNever,          // kept until the main weights change
};

struct UnitOptions {
  // The unit whose forward and backward enclose this one's. Null: a root.
  Unit* parent = nullptr;
  // What the unit does not share with the others of its context: experts, for
  // one, are replicated along fewer axes than dense layers. Where axes are
  // given, their default cut order is the last one first, and placements have
  // one entry for each; no axes at all are legal.
  std::optional<std::vector<std::string>> data_parallel_axes = std::nullopt;
  std::optional<std::vector<std::string>> cut_order = std::nullopt;
  std::optional<UnitPlacements> placements = std::nullopt;
  std::optional<Precision> precision = std::nullopt;
  std::optional<double> grad_divisor = std::nullopt;
  ReleaseWeights release = ReleaseWeights::kAfterForward;
  GradientHooks gradient_hooks = {};
};

// What a forward is for.
enum class ForwardKind {
  kTraining,   // its backward follows
  kInference,  // it has no backward and is not counted
};

// How a trainer writes a gradient.
enum class GradientWrite {
  kOverwrite,   // every element, this once or as the last writer
  kAccumulate,  // adds; the first in a backward sees zeros
};

struct ParameterOptions {
  bool requires_grad = true;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_OPTIONS_H_
