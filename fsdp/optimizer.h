#ifndef TESSERA_FSDP_OPTIMIZER_H_
#define TESSERA_FSDP_OPTIMIZER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer_groups.h"

namespace tessera {

// Of one group of parameters: as in SgdUpdate.
struct SgdHyperparameters {
  double learning_rate = 0.0;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  friend bool operator==(const SgdHyperparameters&,
                         const SgdHyperparameters&) = default;
};

// Of one group of parameters: as in AdamWUpdate.
struct AdamWHyperparameters {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  friend bool operator==(const AdamWHyperparameters&,
                         const AdamWHyperparameters&) = default;
};

// SGD, with momentum where it is asked for, on shards: the arithmetic of
// SgdUpdate. Keeps one value per element where any group has momentum.
//
//   SgdOptimizer optimizer(*context, /*learning_rate=*/0.1);
class SgdOptimizer final : public GroupedOptimizer<SgdHyperparameters> {
 public:
  // Without momentum and weight decay.
  SgdOptimizer(Context& context, double learning_rate);

  // All parameters alike, or groups[choose(unit, parameter)] for each.
  // ERRORS: InvalidArgument for no groups, a negative momentum or weight decay,
  // nesterov without momentum or with dampening, or what is not finite, naming
  // the group.
  static absl::StatusOr<SgdOptimizer> Create(Context& context,
                                             SgdHyperparameters all);
  static absl::StatusOr<SgdOptimizer> Create(
      Context& context, std::vector<SgdHyperparameters> groups,
      ChooseGroup choose);

 private:
  using GroupedOptimizer::GroupedOptimizer;
  absl::Status Update(const OptimizerShard& shard,
                      const SgdHyperparameters& hyperparameters,
                      Interval elements, const internal::ShardState& state,
                      Stream& stream) override;
};

// AdamW on shards: the arithmetic of AdamWUpdate, whose step counts the updates
// of a unit's group. Keeps two values per element.
//
//   // No weight decay for norms and biases.
//   TESSERA_ASSIGN_OR_RETURN(
//       auto optimizer,
//       AdamWOptimizer::Create(
//           *context, {{.weight_decay = 0.1}, {.weight_decay = 0.0}},
//           [](absl::string_view, absl::string_view parameter) {
//             return parameter == "norm" || parameter == "bias" ? 1 : 0;
//           }));
class AdamWOptimizer final : public GroupedOptimizer<AdamWHyperparameters> {
 public:
  // All parameters alike, or groups[choose(unit, parameter)] for each.
  // ERRORS: InvalidArgument for no groups, betas outside [0, 1), an epsilon
  // below the least normal f32 (padding would not stay zero), a negative weight
  // decay, or what is not finite, naming the group.
  static absl::StatusOr<AdamWOptimizer> Create(Context& context,
                                               AdamWHyperparameters all = {});
  static absl::StatusOr<AdamWOptimizer> Create(
      Context& context, std::vector<AdamWHyperparameters> groups,
      ChooseGroup choose);

 private:
  using GroupedOptimizer::GroupedOptimizer;
  absl::Status Update(const OptimizerShard& shard,
                      const AdamWHyperparameters& hyperparameters,
                      Interval elements, const internal::ShardState& state,
                      Stream& stream) override;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_OPTIMIZER_H_
