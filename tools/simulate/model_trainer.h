#ifndef TESSERA_TOOLS_SIMULATE_MODEL_TRAINER_H_
#define TESSERA_TOOLS_SIMULATE_MODEL_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/stream.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/placements.h"
#include "tessera/mesh/device_mesh.h"
#include "tools/models/model.h"

namespace tessera::tools {

// What updates the shards.
enum class TrainerOptimizer {
  kSgd,       // no state
  kMomentum,  // SGD with one value per parameter
  kAdamW,     // two values
};

// "sgd", "momentum" or "adamw".
absl::string_view TrainerOptimizerName(TrainerOptimizer optimizer);

struct TrainingOptions {
  DeviceMesh mesh = {};  // all of its axes are data-parallel
  UnitPlacements placements = {};
  int64_t tokens = 1;  // of a rank, in one microbatch; at least 1
  int microbatches = 1;
  TrainerOptimizer optimizer = TrainerOptimizer::kSgd;
  OverlapOptions overlap = {};
  // The share of a unit's parameters that a token passes, in %.
  double active_percent = 100;
};

// A program that trains a model on one rank as far as its costs go: it has the
// runtime gather, reduce and update everything, and in place of the layers'
// mathematics launches work of the same size. Values mean nothing. It runs on
// simulated ranks and on real ones.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       const std::unique_ptr<ModelTrainer> trainer,
//       ModelTrainer::Create(model, options, world, compute));
//   TESSERA_RETURN_IF_ERROR(trainer->Step());
//
// Every unit of the model, each repeat by itself ("layer.3"), is a unit of the
// runtime, and no unit is inside another: so all of them share the slots for
// gathered weights and unreduced gradients, embedding and head as well. Dtypes
// are the runtime's defaults for parameters of the model's dtype.
//
// For each unit and microbatch the forward is a launch on the compute stream
// of 2 flops per active parameter and token, the backward of 4, and each moves
// the bytes of all the unit's weights.
//
// Not thread-safe. LIFETIME: borrows the world communicator and the stream.
class ModelTrainer {
 public:
  // Forwards that a step may have: units times microbatches.
  static constexpr int64_t kMostForwards = 50'000;

  // Makes and prepares the units. COLLECTIVE over the mesh. ERRORS:
  // InvalidArgument for more than kMostForwards; those of Context::Create,
  // UnitBuilder::Build and Context::Prepare.
  static absl::StatusOr<std::unique_ptr<ModelTrainer>> Create(
      const Model& model, const TrainingOptions& options, Communicator& world,
      Stream& compute);

  // One step: for each microbatch all units forward, then backward in reverse;
  // then the optimizer on the shards, and gradients are released. Ends when all
  // streams are idle. COLLECTIVE over the mesh.
  absl::Status Step();

  Context& context() { return *context_; }

 private:
  struct TrainedUnit {
    Unit* unit = nullptr;
    int64_t weight_bytes = 0;
    int64_t flops = 0;  // of a product with the weights, for all tokens
  };

  ModelTrainer(const TrainingOptions& options, std::unique_ptr<Context> context,
               Stream& compute)
      : options_(options), context_(std::move(context)), compute_(compute) {}

  absl::Status AddUnit(const Model& model, const Model::Unit& unit,
                       absl::string_view name);
  absl::Status Forward(const TrainedUnit& trained);
  absl::Status Backward(const TrainedUnit& trained);
  absl::Status Compute(const TrainedUnit& trained, absl::string_view phase,
                       int64_t products);

  const TrainingOptions options_;
  const std::unique_ptr<Context> context_;
  Stream& compute_;
  std::vector<TrainedUnit> units_;
  std::function<absl::Status()> optimizer_step_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_SIMULATE_MODEL_TRAINER_H_
