#ifndef TESSERA_FSDP_WHOLE_PARAMETERS_H_
#define TESSERA_FSDP_WHOLE_PARAMETERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/device/memory.h"
#include "tessera/device/stream.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer_shard.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/execute_many.h"
#include "tessera/redistribute/workspace.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// The tag under which whole weights and gradients are allocated.
inline constexpr char kWholeParametersTag[] = "whole_parameters";

// A parameter as an update that needs it whole sees it. LIFETIME: until the
// stream has come past the update.
struct WholeParameter {
  const Unit& unit;
  ParameterId parameter = 0;
  TensorView weight;    // main-weight dtype, the parameter's dims
  TensorView gradient;  // accumulation dtype, the same dims; to be read only
  TensorView state;  // main-weight dtype, flat; zeros before the first update
  int64_t step = 1;  // 1 for the first update
};

struct WholeParameterOptions {
  // Which parameters: the same on all ranks. Asked once for each that is not
  // frozen. Null: all of them.
  std::function<bool(const Unit&, ParameterId)> chooses = nullptr;
  // How many values are kept from update to update for a parameter of this
  // shape. Asked once for each that is chosen. Null: none.
  std::function<int64_t(const Shape&)> state_elements = nullptr;
  // What redistributions are planned for.
  Topology topology = Topology::LocalCpu();
};

// What optimizers need that cannot work on flat shards, such as Muon and
// Shampoo: each chosen parameter whole, over all axes of the mesh, on a rank
// that owns it. Pieces of main weights and gradients are redistributed to the
// owners, for all parameters at once; an owner updates its weights; these are
// redistributed back. Other parameters are another optimizer's:
//
//   const auto is_matrix = [](const Unit& unit, ParameterId p) {
//     return unit.parameter_layout(p).shape().num_dims() == 2;
//   };
//   TESSERA_ASSIGN_OR_RETURN(
//       auto whole, WholeParameters::Create(*context, {.chooses = is_matrix}));
//   ...  // with AdamW in kNoGroup for matrices, in every step
//   TESSERA_RETURN_IF_ERROR(context->StepTogether(
//       [&](absl::Span<const OptimizerShard> shards, Stream& stream) {
//         for (const OptimizerShard& shard : shards) {
//           TESSERA_RETURN_IF_ERROR(adamw.UpdateShard(shard, stream));
//         }
//         return whole.Update(shards, stream, OrthogonalizedUpdate);
//       }));
//
// Owners are those of WholeTensorLayouts, in the optimizer placements: balanced
// over the axes that are Flat there. Along all other axes there are replicas,
// which do the same work; so an update that depends on its values alone keeps
// them equal to the bit, and gives the bits of one process. Where a parameter
// lies whole on its owners already, nothing is moved, and the update works in
// place.
//
// Memory of the compute stream's device. In Update, under kWholeParametersTag:
// whole_bytes(), for the weights and gradients of what is moved to this rank:
// of at most an equal share of all chosen elements and the largest parameter,
// where the same axes cut them all; and the workspace of the plans, under
// "workspace". From the first update on, under kOptimizerStateTag: the state of
// what this rank owns.
//
// One call at a time. LIFETIME: borrows the context, and dies before its
// compute stream.
class WholeParameters {
 public:
  // ERRORS: FailedPrecondition before Context::Prepare; those of
  // WholeTensorLayouts; InvalidArgument for a number of values of state that
  // cannot be.
  static absl::StatusOr<WholeParameters> Create(Context& context,
                                                WholeParameterOptions options);

  // In Context::StepTogether, with what that gives: calls `update` on the owner
  // of each chosen parameter in `shards`, to enqueue on the stream what changes
  // the weight and the state.
  // COLLECTIVE over the mesh; shards of a set that is new, as in the first
  // step, block the host while plans are compared. ERRORS: those of PlanMany,
  // Prepare and PreparedManyPlan::Execute; ResourceExhausted; those of
  // `update`, on its rank, and Aborted with its reason on the others.
  absl::Status Update(
      absl::Span<const OptimizerShard> shards, Stream& stream,
      absl::FunctionRef<absl::Status(const WholeParameter&, Stream&)> update);

  // Whether this rank is an owner of the parameter.
  bool Owns(const Unit& unit, ParameterId p) const;
  // What Update takes where all chosen parameters have a gradient.
  int64_t whole_bytes() const;
  // What state takes on this rank once all chosen parameters were updated.
  int64_t state_bytes() const;

 private:
  struct Chosen {
    const Unit* unit;
    ParameterId parameter;
    Layout whole;  // of the weight
    DType gradient;
    int64_t state_elements;
    bool is_moved = false;  // or whole where it lies, and updated in place
    bool is_owned = false;

    Layout WholeGradient() const;
    // Of weight and gradient on this rank.
    int64_t whole_bytes() const;
    int64_t state_bytes() const {
      return state_elements * SizeOf(whole.dtype());
    }
  };
  // What is kept of an owned parameter.
  struct State {
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();

    Buffer memory;
    Stream* stream = nullptr;  // what used the memory last
    TensorView values;
    int64_t steps = 0;  // updates so far
  };
  // How some of the chosen get to their owners and back.
  struct Moves {
    std::vector<const Chosen*> moved;
    PreparedManyPlan to_owners;  // all weights, then all gradients
    PreparedManyPlan to_shards;  // all weights
  };
  using Key = std::pair<const Unit*, ParameterId>;
  using ChosenList = std::vector<const Chosen*>;
  using UpdateOne =
      absl::FunctionRef<absl::Status(const WholeParameter&, Stream&)>;

  WholeParameters(Context& context, Topology topology)
      : context_(&context), topology_(std::move(topology)) {}

  // Those of `shards`, in their order.
  ChosenList ChosenIn(absl::Span<const OptimizerShard> shards) const;
  absl::StatusOr<Moves> PlanMoves(ChosenList moved, Stream& stream) const;
  absl::StatusOr<Moves*> FindOrPlanMoves(const ChosenList& chosen,
                                         Stream& stream);
  // Moves, updates and moves back, with memory for whole parameters.
  absl::Status UpdateMoved(Moves& moves, Workspace memory, Stream& stream,
                           UpdateOne update);
  absl::Status UpdateInPlace(const Chosen& chosen, Stream& stream,
                             UpdateOne update);
  // `weight` and `gradient` hold the whole parameter.
  absl::Status UpdateOwned(const Chosen& chosen, const TensorView& weight,
                           const TensorView& gradient, Stream& stream,
                           UpdateOne update);
  absl::StatusOr<State*> FindOrMakeState(const Chosen& chosen, Stream& stream);

  Context* context_;
  Topology topology_;
  std::map<Key, Chosen> chosen_;
  std::map<Key, State> states_;
  std::map<ChosenList, Moves> moves_;  // by what is moved
};

}  // namespace tessera

#endif  // TESSERA_FSDP_WHOLE_PARAMETERS_H_
