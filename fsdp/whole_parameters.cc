#include "tessera/fsdp/whole_parameters.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"
#include "tessera/dbuffer/whole_tensors.h"
#include "tessera/device/device.h"
#include "tessera/fsdp/runtime.h"
#include "tessera/fsdp/shard_states.h"
#include "tessera/redistribute/plan_many.h"

namespace tessera {
namespace {

// Of the memory of a whole weight or gradient.
constexpr int64_t kAlignment = 128;

int64_t AlignedBytes(int64_t bytes) {
  return CeilDiv(bytes, kAlignment) * kAlignment;
}

// Hands out memory, piece by piece.
class Pieces {
 public:
  explicit Pieces(Workspace memory)
      : next_(static_cast<std::byte*>(memory.data)) {}

  TensorView Next(TensorMeta meta) {
    if (meta.num_elements() == 0) return TensorView(nullptr, std::move(meta));
    std::byte* const data = next_;
    next_ += AlignedBytes(meta.num_bytes());
    return TensorView(data, std::move(meta));
  }

 private:
  std::byte* next_;
};

// Executes with a workspace of the stream's device.
absl::Status Execute(PreparedManyPlan& plan,
                     absl::Span<const TensorView> sources,
                     absl::Span<const TensorView> targets, Stream& stream) {
  return internal::WithWorkspace(
      plan.workspace_bytes(), stream, [&](Workspace workspace) {
        return plan.Execute(sources, targets, workspace);
      });
}

absl::StatusOr<PreparedManyPlan> PlanAndPrepare(
    absl::Span<const Redistribution> tensors, const Topology& topology,
    CommSet& comms, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(ManyPlan plan, PlanMany(tensors, topology));
  return Prepare(std::make_shared<const ManyPlan>(std::move(plan)), comms,
                 stream);
}

// What options want kept for a parameter with main weights of this layout.
absl::StatusOr<int64_t> StateElements(const WholeParameterOptions& options,
                                      const Unit& unit, ParameterId p,
                                      const Layout& weight) {
  if (options.state_elements == nullptr) return 0;
  const int64_t elements = options.state_elements(weight.shape());
  const bool can_be =
      elements >= 0 && CheckedMul(elements, SizeOf(weight.dtype())).has_value();
  if (can_be) return elements;
  return absl::InvalidArgumentError(absl::StrCat(
      "whole parameters: unit '", unit.name(), "' parameter '",
      unit.parameter_name(p), "': found ", elements, " values of state"));
}

}  // namespace

Layout WholeParameters::Chosen::WholeGradient() const {
  // Of a layout that exists, with another dtype.
  return *Layout::Create(*TensorMeta::Create(gradient, whole.shape()),
                         whole.mesh(), whole.placements());
}

int64_t WholeParameters::Chosen::whole_bytes() const {
  if (!is_moved || !is_owned) return 0;
  return AlignedBytes(whole.meta().num_bytes()) +
         AlignedBytes(whole.meta().num_elements() * SizeOf(gradient));
}

WholeParameters::State::~State() {
  if (stream != nullptr) memory.ResetAfter(*stream);
}

absl::StatusOr<WholeParameters> WholeParameters::Create(
    Context& context, WholeParameterOptions options) {
  WholeParameters result(context, std::move(options.topology));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<OptimizerShard> shards,
                           context.optimizer_shards());
  std::vector<Chosen> chosen;
  std::vector<Layout> cut;
  for (const OptimizerShard& shard : shards) {
    for (const ShardPiece& piece : shard.pieces) {
      const bool is_chosen = options.chooses == nullptr ||
                             options.chooses(shard.unit, piece.parameter);
      if (!is_chosen) continue;
      TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight,
                               shard.unit.main_weight(piece.parameter));
      TESSERA_ASSIGN_OR_RETURN(
          const int64_t state_elements,
          StateElements(options, shard.unit, piece.parameter, weight.layout()));
      chosen.push_back({.unit = &shard.unit,
                        .parameter = piece.parameter,
                        .whole = {},
                        .gradient = shard.gradient.dtype(),
                        .state_elements = state_elements});
      cut.push_back(weight.layout());
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Layout> whole,
                           WholeTensorLayouts(cut));
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i].whole = whole[i];
    chosen[i].is_moved = whole[i] != cut[i];
    chosen[i].is_owned = whole[i].RegionOf(context.rank()).num_elements() > 0;
    result.chosen_.emplace(Key(chosen[i].unit, chosen[i].parameter), chosen[i]);
  }
  return result;
}

bool WholeParameters::Owns(const Unit& unit, ParameterId p) const {
  const auto found = chosen_.find({&unit, p});
  return found != chosen_.end() && found->second.is_owned;
}

int64_t WholeParameters::whole_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, chosen] : chosen_) bytes += chosen.whole_bytes();
  return bytes;
}

int64_t WholeParameters::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, chosen] : chosen_) {
    if (chosen.is_owned) bytes += chosen.state_bytes();
  }
  return bytes;
}

WholeParameters::ChosenList WholeParameters::ChosenIn(
    absl::Span<const OptimizerShard> shards) const {
  ChosenList list;
  for (const OptimizerShard& shard : shards) {
    for (const ShardPiece& piece : shard.pieces) {
      const auto found = chosen_.find({&shard.unit, piece.parameter});
      if (found != chosen_.end()) list.push_back(&found->second);
    }
  }
  return list;
}

absl::StatusOr<WholeParameters::Moves> WholeParameters::PlanMoves(
    ChosenList moved, Stream& stream) const {
  std::vector<Redistribution> to_owners;
  std::vector<Redistribution> to_shards;
  for (const Chosen* one : moved) {
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight,
                             one->unit->main_weight(one->parameter));
    to_owners.push_back({weight.layout(), one->whole});
    to_shards.push_back({one->whole, weight.layout()});
  }
  for (const Chosen* one : moved) {
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor gradient,
                             one->unit->main_grad(one->parameter));
    to_owners.push_back({gradient.layout(), one->WholeGradient()});
  }
  CommSet& comms = context_->comms();
  TESSERA_ASSIGN_OR_RETURN(PreparedManyPlan there,
                           PlanAndPrepare(to_owners, topology_, comms, stream));
  TESSERA_ASSIGN_OR_RETURN(PreparedManyPlan back,
                           PlanAndPrepare(to_shards, topology_, comms, stream));
  return Moves{.moved = std::move(moved),
               .to_owners = std::move(there),
               .to_shards = std::move(back)};
}

absl::StatusOr<WholeParameters::Moves*> WholeParameters::FindOrPlanMoves(
    const ChosenList& moved, Stream& stream) {
  if (const auto found = moves_.find(moved); found != moves_.end()) {
    return &found->second;
  }
  TESSERA_ASSIGN_OR_RETURN(Moves moves, PlanMoves(moved, stream));
  return &moves_.emplace(moved, std::move(moves)).first->second;
}

absl::Status WholeParameters::Update(absl::Span<const OptimizerShard> shards,
                                     Stream& stream, UpdateOne update) {
  ChosenList moved;
  int64_t bytes = 0;
  for (const Chosen* one : ChosenIn(shards)) {
    if (one->is_moved) {
      moved.push_back(one);
      bytes += one->whole_bytes();
    } else if (one->is_owned) {
      TESSERA_RETURN_IF_ERROR(UpdateInPlace(*one, stream, update));
    }
  }
  if (moved.empty()) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(Moves * moves, FindOrPlanMoves(moved, stream));
  return internal::WithWorkspace(
      bytes, stream,
      [&](Workspace memory) {
        return UpdateMoved(*moves, memory, stream, update);
      },
      kWholeParametersTag);
}

absl::Status WholeParameters::UpdateMoved(Moves& moves, Workspace memory,
                                          Stream& stream, UpdateOne update) {
  const size_t count = moves.moved.size();
  const int rank = context_->rank();
  // All weights, then all gradients, as the plan has them.
  std::vector<TensorView> pieces(2 * count);
  std::vector<TensorView> whole(2 * count);
  Pieces next(memory);
  for (size_t i = 0; i < count; ++i) {
    const Chosen& one = *moves.moved[i];
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight,
                             one.unit->main_weight(one.parameter));
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor gradient,
                             one.unit->main_grad(one.parameter));
    pieces[i] = weight.local();
    pieces[count + i] = gradient.local();
    whole[i] = next.Next(one.whole.LocalMeta(rank));
    whole[count + i] = next.Next(one.WholeGradient().LocalMeta(rank));
  }
  TESSERA_RETURN_IF_ERROR(Execute(moves.to_owners, pieces, whole, stream));
  for (size_t i = 0; i < count; ++i) {
    if (!moves.moved[i]->is_owned) continue;
    TESSERA_RETURN_IF_ERROR(UpdateOwned(*moves.moved[i], whole[i],
                                        whole[count + i], stream, update));
  }
  return Execute(moves.to_shards, absl::MakeSpan(whole).first(count),
                 absl::MakeSpan(pieces).first(count), stream);
}

absl::Status WholeParameters::UpdateInPlace(const Chosen& chosen,
                                            Stream& stream, UpdateOne update) {
  TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight,
                           chosen.unit->main_weight(chosen.parameter));
  TESSERA_ASSIGN_OR_RETURN(const ShardedTensor gradient,
                           chosen.unit->main_grad(chosen.parameter));
  return UpdateOwned(chosen, weight.local(), gradient.local(), stream, update);
}

absl::Status WholeParameters::UpdateOwned(const Chosen& chosen,
                                          const TensorView& weight,
                                          const TensorView& gradient,
                                          Stream& stream, UpdateOne update) {
  const absl::StatusOr<State*> state = FindOrMakeState(chosen, stream);
  absl::Status status = state.status();
  if (status.ok()) {
    status = update(
        {.unit = *chosen.unit,
         .parameter = chosen.parameter,
         .weight = TensorView(weight.data(), chosen.whole.meta()),
         .gradient = TensorView(gradient.data(), chosen.WholeGradient().meta()),
         .state = (*state)->values,
         .step = (*state)->steps + 1},
        stream);
  }
  if (status.ok()) ++(*state)->steps;
  return internal::Prefixed(
      absl::StrCat("unit '", chosen.unit->name(), "' parameter '",
                   chosen.unit->parameter_name(chosen.parameter), "': "),
      status);
}

absl::StatusOr<WholeParameters::State*> WholeParameters::FindOrMakeState(
    const Chosen& chosen, Stream& stream) {
  const auto [entry, is_new] =
      states_.try_emplace({chosen.unit, chosen.parameter});
  State& state = entry->second;
  if (!is_new || chosen.state_elements == 0) return &state;
  absl::StatusOr<Buffer> memory = stream.device().Allocate(
      chosen.state_bytes(), kOptimizerStateTag, &stream);
  if (!memory.ok()) {
    states_.erase(entry);
    return memory.status();
  }
  state.memory = *std::move(memory);
  state.stream = &stream;
  state.values = TensorView::Flat(state.memory.data(), chosen.whole.dtype(),
                                  chosen.state_elements);
  TESSERA_RETURN_IF_ERROR(
      stream.device().kernels().Fill(stream, state.values, 0.0));
  return &state;
}

}  // namespace tessera
