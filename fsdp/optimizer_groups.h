#ifndef TESSERA_FSDP_OPTIMIZER_GROUPS_H_
#define TESSERA_FSDP_OPTIMIZER_GROUPS_H_

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer_shard.h"
#include "tessera/fsdp/shard_states.h"

namespace tessera {

// Says which of an optimizer's groups a parameter is in, by its index, or
// kNoGroup. The same on every rank; asked once for each parameter.
using ChooseGroup =
    std::function<int(absl::string_view unit, absl::string_view parameter)>;

// Of parameters that an optimizer leaves to others: it keeps no state for them.
inline constexpr int kNoGroup = -1;

namespace internal {

// Elements of a shard that one launch updates.
struct ShardRun {
  int group = 0;
  Interval elements = {};
  friend bool operator==(const ShardRun&, const ShardRun&) = default;
};

// Neighbours of one group are one run, with the padding between them; pieces
// without elements or of kNoGroup have no part in any.
std::vector<ShardRun> RunsOf(absl::Span<const ShardPiece> pieces,
                             absl::FunctionRef<int(ParameterId)> group_of);

// Elements that an optimizer keeps state for: those of a group, with the
// padding between neighbours; all of the shard, with all padding, where none is
// left to others.
std::vector<Interval> KeptRuns(const OptimizerShard& shard,
                               absl::FunctionRef<int(ParameterId)> group_of);

// The groups that the parameters of a context are in.
class ParameterChoices {
 public:
  explicit ParameterChoices(ChooseGroup choose) : choose_(std::move(choose)) {}

  // Asks for every parameter, the first time.
  // ERRORS: InvalidArgument, naming unit and parameter, for a group that is
  // neither one of `num_groups` nor kNoGroup.
  absl::Status Resolve(const Context& context, int num_groups);

  // REQUIRES: Resolve was OK.
  int GroupOf(const Unit& unit, ParameterId p) const {
    return groups_.at(&unit)[p];
  }

 private:
  ChooseGroup choose_;
  std::map<const Unit*, std::vector<int>> groups_;
  bool resolved_ = false;
};

}  // namespace internal

// What optimizers of flat shards have in common: groups of parameters with
// hyperparameters of their own, and state for each element that exists from its
// first update on. Neighbours in a shard whose hyperparameters are equal are
// updated in one launch.
//
// State takes memory of the compute stream's device under the tag
// "optimizer_state": for every group of a unit that has gradients, so many
// times what its main weight takes, or the runs of it that are not left to
// others. LIFETIME: borrows the context, and dies before its compute stream.
template <typename Hyperparameters>
class GroupedOptimizer {
 public:
  int num_groups() const { return static_cast<int>(groups_.size()); }
  const Hyperparameters& hyperparameters(int group = 0) const {
    return groups_[group];
  }
  double learning_rate(int group = 0) const {
    return groups_[group].learning_rate;
  }
  // For the steps to come: of all groups, or of one. A schedule is the
  // trainer's. REQUIRES: 0 <= group < num_groups().
  void set_learning_rate(double learning_rate) {
    for (Hyperparameters& group : groups_) group.learning_rate = learning_rate;
  }
  void set_learning_rate(int group, double learning_rate) {
    groups_[group].learning_rate = learning_rate;
  }

  // Bytes that all state on this rank takes once it is made. ERRORS: as
  // MakeState but for memory.
  absl::StatusOr<int64_t> StateBytes() {
    TESSERA_RETURN_IF_ERROR(choices_.Resolve(*context_, num_groups()));
    TESSERA_ASSIGN_OR_RETURN(const std::vector<OptimizerShard> shards,
                             context_->optimizer_shards());
    int64_t bytes = 0;
    for (const OptimizerShard& shard : shards) {
      for (const Interval& run : KeptRuns(shard)) {
        bytes +=
            values_per_element_ * run.size() * SizeOf(shard.weight.dtype());
      }
    }
    return bytes;
  }

  // Makes all state now. That is no step: the first update is the same.
  // ERRORS: ResourceExhausted; those of Context::optimizer_shards; as Step for
  // groups that do not exist.
  absl::Status MakeState() {
    TESSERA_RETURN_IF_ERROR(choices_.Resolve(*context_, num_groups()));
    TESSERA_ASSIGN_OR_RETURN(const std::vector<OptimizerShard> shards,
                             context_->optimizer_shards());
    for (const OptimizerShard& shard : shards) {
      TESSERA_RETURN_IF_ERROR(StateOf(shard, context_->compute()).status());
    }
    return absl::OkStatus();
  }

  // Updates all main weights with a final gradient. COLLECTIVE and ERRORS:
  // those of Context::Step; ResourceExhausted, sticky in the context, where
  // there is no memory for state; InvalidArgument, with nothing changed, for a
  // parameter in a group that does not exist.
  absl::Status Step() {
    TESSERA_RETURN_IF_ERROR(choices_.Resolve(*context_, num_groups()));
    return context_->Step([this](const OptimizerShard& shard, Stream& stream) {
      return UpdateShard(shard, stream);
    });
  }

  // What Step does with one shard, for a trainer that has several optimizers,
  // in Context::Step or StepTogether. ERRORS: those of Step but
  // Context::Step's.
  absl::Status UpdateShard(const OptimizerShard& shard, Stream& stream) {
    TESSERA_RETURN_IF_ERROR(choices_.Resolve(*context_, num_groups()));
    TESSERA_ASSIGN_OR_RETURN(internal::ShardState * state,
                             StateOf(shard, stream));
    for (const internal::ShardRun& run : RunsOf(shard)) {
      TESSERA_RETURN_IF_ERROR(
          Update(shard, groups_[run.group], run.elements, *state, stream));
    }
    ++state->steps;
    return absl::OkStatus();
  }

 protected:
  GroupedOptimizer(Context& context, std::vector<Hyperparameters> groups,
                   ChooseGroup choose, int values_per_element)
      : context_(&context),
        groups_(std::move(groups)),
        choices_(std::move(choose)),
        values_per_element_(values_per_element) {}
  GroupedOptimizer(GroupedOptimizer&&) = default;
  virtual ~GroupedOptimizer() = default;

 private:
  // Enqueues the update of these elements of a shard.
  virtual absl::Status Update(const OptimizerShard& shard,
                              const Hyperparameters& hyperparameters,
                              Interval elements,
                              const internal::ShardState& state,
                              Stream& stream) = 0;

  absl::StatusOr<internal::ShardState*> StateOf(const OptimizerShard& shard,
                                                Stream& stream) {
    return states_.FindOrMake(shard, KeptRuns(shard), values_per_element_,
                              stream);
  }

  std::vector<Interval> KeptRuns(const OptimizerShard& shard) const {
    return internal::KeptRuns(
        shard, [&](ParameterId p) { return choices_.GroupOf(shard.unit, p); });
  }

  std::vector<internal::ShardRun> RunsOf(const OptimizerShard& shard) const {
    return internal::RunsOf(shard.pieces, [&](ParameterId p) {
      const int group = choices_.GroupOf(shard.unit, p);
      if (group == kNoGroup) return kNoGroup;
      // The first that is equal. NaNs equal nothing, themselves included.
      const auto own = groups_.begin() + group;
      return static_cast<int>(std::find(groups_.begin(), own, *own) -
                              groups_.begin());
    });
  }

  Context* context_;
  std::vector<Hyperparameters> groups_;
  internal::ParameterChoices choices_;
  int values_per_element_;
  internal::ShardStates states_;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_OPTIMIZER_GROUPS_H_
