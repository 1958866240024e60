#include "tessera/fsdp/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera {
namespace {

// Both return what is wrong, or "".

std::string CheckFinite(absl::string_view name, double value) {
  if (std::isfinite(value)) return "";
  return absl::StrCat(name, " is ", value, ", want a finite number");
}

std::string CheckAtLeast(double least, absl::string_view name, double value) {
  if (value < least) {
    return absl::StrCat(name, " is ", value, ", want at least ", least);
  }
  return CheckFinite(name, value);
}

std::string Check(const SgdHyperparameters& h) {
  for (const std::string& problem :
       {CheckFinite("learning_rate", h.learning_rate),
        CheckAtLeast(0, "momentum", h.momentum),
        CheckFinite("dampening", h.dampening),
        CheckAtLeast(0, "weight_decay", h.weight_decay)}) {
    if (!problem.empty()) return problem;
  }
  if (h.nesterov && (h.momentum == 0 || h.dampening != 0)) {
    return absl::StrCat("nesterov wants momentum and no dampening, found ",
                        h.momentum, " and ", h.dampening);
  }
  return "";
}

std::string Check(const AdamWHyperparameters& h) {
  for (const std::string& problem :
       {CheckFinite("learning_rate", h.learning_rate),
        CheckAtLeast(0, "beta1", h.beta1), CheckAtLeast(0, "beta2", h.beta2),
        CheckAtLeast(std::numeric_limits<float>::min(), "epsilon", h.epsilon),
        CheckAtLeast(0, "weight_decay", h.weight_decay)}) {
    if (!problem.empty()) return problem;
  }
  if (h.beta1 >= 1 || h.beta2 >= 1) {
    return absl::StrCat("betas are ", h.beta1, " and ", h.beta2,
                        ", want less than 1");
  }
  return "";
}

template <typename Hyperparameters>
absl::Status CheckGroups(const std::vector<Hyperparameters>& groups) {
  if (groups.empty()) {
    return absl::InvalidArgumentError(
        "optimizer: want at least one group of parameters, found none");
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string problem = Check(groups[g]);
    if (problem.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: in group ", g, " ", problem));
  }
  return absl::OkStatus();
}

bool AnyMomentum(const std::vector<SgdHyperparameters>& groups) {
  return std::any_of(
      groups.begin(), groups.end(),
      [](const SgdHyperparameters& group) { return group.momentum != 0; });
}

}  // namespace

SgdOptimizer::SgdOptimizer(Context& context, double learning_rate)
    : GroupedOptimizer(context, {{.learning_rate = learning_rate}},
                       /*choose=*/nullptr, /*values_per_element=*/0) {}

absl::StatusOr<SgdOptimizer> SgdOptimizer::Create(Context& context,
                                                  SgdHyperparameters all) {
  return Create(context, {all}, /*choose=*/nullptr);
}

absl::StatusOr<SgdOptimizer> SgdOptimizer::Create(
    Context& context, std::vector<SgdHyperparameters> groups,
    ChooseGroup choose) {
  TESSERA_RETURN_IF_ERROR(CheckGroups(groups));
  const int values_per_element = AnyMomentum(groups) ? 1 : 0;
  return SgdOptimizer(context, std::move(groups), std::move(choose),
                      values_per_element);
}

absl::Status SgdOptimizer::Update(const OptimizerShard& shard,
                                  const SgdHyperparameters& h,
                                  Interval elements,
                                  const internal::ShardState& state,
                                  Stream& stream) {
  const TensorView momentum =
      h.momentum == 0 ? TensorView() : state.Values(0, elements);
  return stream.device().kernels().Sgd(stream, shard.weight.Slice(0, elements),
                                       shard.gradient.Slice(0, elements),
                                       momentum,
                                       {.learning_rate = h.learning_rate,
                                        .momentum = h.momentum,
                                        .dampening = h.dampening,
                                        .weight_decay = h.weight_decay,
                                        .nesterov = h.nesterov,
                                        .first = state.steps == 0});
}

absl::StatusOr<AdamWOptimizer> AdamWOptimizer::Create(
    Context& context, AdamWHyperparameters all) {
  return Create(context, {all}, /*choose=*/nullptr);
}

absl::StatusOr<AdamWOptimizer> AdamWOptimizer::Create(
    Context& context, std::vector<AdamWHyperparameters> groups,
    ChooseGroup choose) {
  TESSERA_RETURN_IF_ERROR(CheckGroups(groups));
  return AdamWOptimizer(context, std::move(groups), std::move(choose),
                        /*values_per_element=*/2);
}

absl::Status AdamWOptimizer::Update(const OptimizerShard& shard,
                                    const AdamWHyperparameters& h,
                                    Interval elements,
                                    const internal::ShardState& state,
                                    Stream& stream) {
  return stream.device().kernels().AdamW(
      stream, shard.weight.Slice(0, elements),
      shard.gradient.Slice(0, elements), state.Values(0, elements),
      state.Values(1, elements),
      {.learning_rate = h.learning_rate,
       .beta1 = h.beta1,
       .beta2 = h.beta2,
       .epsilon = h.epsilon,
       .weight_decay = h.weight_decay,
       .step = state.steps + 1});
}

}  // namespace tessera
