#ifndef TESSERA_FSDP_UNIT_H_
#define TESSERA_FSDP_UNIT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/device/stream.h"
#include "tessera/fsdp/data_parallel_axes.h"
#include "tessera/fsdp/memory_plan.h"
#include "tessera/fsdp/options.h"
#include "tessera/placement/layout.h"
#include "tessera/placement/region.h"
#include "tessera/redistribute/sharded_tensor.h"
#include "tessera/tensor/tensor_meta.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

namespace internal {
class GatherOrder;
class ParameterGroup;
class Runtime;
struct Slot;
}  // namespace internal

// The part of a main weight that one rank holds.
struct WeightPiece {
  // Which elements of the parameter.
  const Region& region;
  // Their values, in host memory, in the region's row-major order; flat.
  TensorView values;
};

// Parameters that are gathered, computed with and reduced together: a layer of
// a model. Made by Context::NewUnit, owned by the context.
//
// The trainer calls four hooks around its own computation, in every
// microbatch:
//
//   unit.BeforeForward();   ... compute with weight(p) ... unit.AfterForward();
//   unit.BeforeBackward();  ... weight(p), write grad(p) ...
//   unit.AfterBackward();
//
// Hooks return nothing: an error stays in the context, makes everything that
// follows a no-op and comes back from weight, grad, Microbatch::Finish and
// Context::Step. The computation runs on the context's compute stream, or on
// the host after synchronizing it. COLLECTIVE over the data-parallel axes: all
// ranks call the hooks of all units in the same order.
//
// A unit counts its outstanding forwards: AfterForward adds one, AfterBackward
// takes one off. Several forwards may run before their backwards. A forward
// inside the unit's own backward is recomputation: it is not counted and
// gathers nothing. A forward for inference is not counted either; forwards
// inside it are for inference, too.
//
// A parameter belongs to one unit. One that several units use, a tied weight,
// belongs to the unit that encloses all of its uses, whose backward then
// encloses them as well: each use adds with GradientWrite::kAccumulate.
class Unit {
 public:
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  // 1 for a root, one more than the parent's otherwise.
  int depth() const { return depth_; }
  // What placements() have an entry for, outer before inner.
  const std::vector<std::string>& data_parallel_axes() const {
    return axes_.names();
  }
  const UnitPlacements& placements() const { return placements_; }
  int num_parameters() const { return static_cast<int>(parameters_.size()); }
  const std::string& parameter_name(ParameterId p) const;
  // The parameter over the mesh, as given to Add: R along the data-parallel
  // axes.
  const Layout& parameter_layout(ParameterId p) const;

  // The units whose weights are gathered ahead when this one begins a forward
  // (a backward), in this order and as far as there is room; no units: none.
  // Default: those that came next in the last pass, as many as
  // OverlapOptions::prefetch. ERRORS: InvalidArgument for null, this unit or
  // one of another context; FailedPrecondition after Context::Prepare.
  absl::Status SetForwardPrefetch(absl::Span<Unit* const> next);
  absl::Status SetBackwardPrefetch(absl::Span<Unit* const> next);

  // Gathers the weights, unless they are there, and then those of the units
  // that are to be gathered ahead: the same in BeforeBackward.
  // FailedPrecondition: inside this unit's forward; outside the parent's
  // forward or backward; training inside the parent's inference.
  void BeforeForward(ForwardKind kind = ForwardKind::kTraining);
  // FailedPrecondition: without BeforeForward.
  void AfterForward();
  // Gathers the weights and opens the gradients.
  // FailedPrecondition: no outstanding forward; inside a forward or backward.
  void BeforeBackward();
  // Reduces the gradients over the Flat axes of the gradient placements and
  // adds them to the main gradient. With `is_last`, or after one with it, and
  // once no forward is outstanding: finalizes the main gradient over the other
  // axes. Default: what the open Microbatch says, or true without one.
  // FailedPrecondition: without BeforeBackward; with MissingGradients::kError,
  // a parameter that is not frozen and was not asked for.
  void AfterBackward(std::optional<bool> is_last = std::nullopt);

  // The whole local weight, with its dims, on the compute stream. Valid inside
  // a forward or backward of the unit.
  absl::StatusOr<TensorView> weight(ParameterId p) const;
  // Where the trainer writes the gradient, in the wire dtype, with the
  // weight's dims, on the compute stream. Valid from BeforeBackward to
  // AfterBackward. For a parameter that is not asked for, see MissingGradients.
  // ERRORS: FailedPrecondition for a frozen parameter or outside a backward.
  absl::StatusOr<TensorView> grad(ParameterId p, GradientWrite write);

  // The accumulated gradient as it rests: its layout is Partial along the
  // axes that are not reduced yet. The compute stream waits for what is
  // being reduced. ERRORS: FailedPrecondition where there is none: frozen, or
  // released and not written since.
  absl::StatusOr<ShardedTensor> main_grad(ParameterId p) const;
  // The main weight, in the optimizer placements.
  absl::StatusOr<ShardedTensor> main_weight(ParameterId p) const;

  // Three ways to set a main weight; the next forward uses it. All
  // data-parallel ranks set the same ones, in any way. They block until the
  // values are there. ERRORS of each: InvalidArgument for values of another
  // shape or dtype than the main weight's; FailedPrecondition before
  // Context::Prepare or while a forward waits for its backward.
  //
  // From host memory that holds the whole local weight (weight(p)'s shape), the
  // same on every data-parallel rank.
  absl::Status LoadWeight(ParameterId p, const TensorView& host_values);

  // From host memory of the mesh's first rank, at coordinate 0 of every axis,
  // that holds the whole parameter over all axes (parameter_layout(p)'s shape);
  // elsewhere `host_values` is not looked at. Every rank gets its piece only.
  // COLLECTIVE over the mesh. COST: that much memory on the first rank's
  // device, and a plan's workspace. ERRORS: also those of MakePlan and Execute,
  // and ResourceExhausted; these stay in the context. The others wait for a
  // first rank that refuses its values, until the timeout.
  absl::Status ScatterWeight(ParameterId p, const TensorView& host_values);

  // Piece by piece: `write` fills in what this rank holds, if that is anything.
  // It gives an element the same value on every rank that holds it. No rank
  // ever has more of the parameter than its piece. ERRORS: also those of
  // `write`.
  absl::Status InitializeWeight(
      ParameterId p, absl::FunctionRef<absl::Status(const WeightPiece&)> write);

 private:
  friend class Context;
  friend class UnitBuilder;

  struct Parameter {
    std::string name;
    Layout layout;
    bool requires_grad;
    // Its group and its index there; set by Build.
    internal::ParameterGroup* group = nullptr;
    int index = 0;
  };

  // Indices of units; nullopt: what came next in the last pass.
  using PrefetchList = std::optional<std::vector<int>>;

  Unit(internal::Runtime& runtime, int index, std::string name,
       const UnitOptions& options, internal::DataParallelAxes axes,
       UnitPlacements placements);

  // Groups the parameters and plans their buffers.
  absl::Status Register(std::vector<Parameter> parameters,
                        const Precision& precision);
  // Allocates the weights.
  absl::Status Prepare();

  absl::Status DoBeforeForward(ForwardKind kind);
  absl::Status DoAfterForward();
  absl::Status DoBeforeBackward();
  absl::Status DoAfterBackward(bool is_last);

  bool open() const { return in_forward_ || in_backward_; }
  absl::Status CheckParameter(ParameterId p) const;
  absl::Status CheckGradient(ParameterId p) const;
  absl::Status CheckHostValues(ParameterId p, const TensorView& values,
                               const Shape& wanted_shape) const;
  absl::Status CheckNoneMissing() const;
  absl::Status CheckChildrenClosed() const;
  // OK where all gradients are final or none; `what` asks.
  absl::Status CheckSteppable(absl::string_view what) const;
  // Indices of groups.
  std::vector<int> FinalGroups() const;

  // Around what sets a main weight.
  absl::Status BeginLoad(ParameterId p);
  absl::Status FinishLoad(ParameterId p);
  absl::Status Refresh();
  // Makes the compute stream wait for the gathered weights.
  absl::Status UseWeights();
  absl::Status SetPrefetch(absl::Span<Unit* const> next, PrefetchList& list);
  // Begins in `order`, and gathers ahead where there is room.
  absl::Status Prefetch(const PrefetchList& given,
                        internal::GatherOrder& order);
  void MakeRoom();
  absl::Status Gather();
  bool ReleasesGathered() const;
  void ReleaseGathered();
  absl::Status OpenGradients();
  absl::Status ReduceGradients();
  absl::Status Finalize();
  absl::Status RunGradientHook(absl::string_view name, const GradientHook& hook,
                               Stream& stream) const;
  absl::Status ZeroGradients(bool release);

  internal::Runtime& runtime_;
  const int index_;  // in registration order
  const std::string name_;
  const Unit* const parent_;
  const int depth_;
  const internal::DataParallelAxes axes_;
  const UnitPlacements placements_;
  const ReleaseWeights release_;
  const double grad_divisor_;
  const GradientHooks gradient_hooks_;
  std::vector<Parameter> parameters_;
  std::vector<std::unique_ptr<internal::ParameterGroup>> groups_;
  UnitMemory memory_;  // of the groups
  PrefetchList forward_prefetch_;
  PrefetchList backward_prefetch_;

  bool in_forward_ = false;
  ForwardKind forward_kind_ = ForwardKind::kTraining;  // of that forward
  bool in_recompute_ = false;  // a forward inside this unit's backward
  bool in_backward_ = false;
  bool last_seen_ = false;  // a backward with is_last, not finalized yet
  int outstanding_ = 0;     // forwards whose backward has not ended
  bool gathered_ = false;
  bool awaited_ = false;    // what is gathered is, by the compute stream
  Event weights_gathered_;  // the gathered weights are there
  bool stale_ = false;      // model weights are not what was loaded
  Event weights_ready_;     // the model weights are what was refreshed last
  Event gradients_ready_;   // what was enqueued on main gradients is done
  internal::Slot* weight_slot_ = nullptr;    // while gathered
  internal::Slot* gradient_slot_ = nullptr;  // during a backward
};

// Collects the parameters of a unit. Errors are kept and come back from Build.
class UnitBuilder {
 public:
  // A parameter that is the same on all ranks.
  ParameterId Add(absl::string_view name, const TensorMeta& meta,
                  ParameterOptions options = {});
  // A parameter with a layout over the context's mesh: R along the
  // data-parallel axes, R or Shard along the others.
  ParameterId Add(absl::string_view name, const Layout& layout,
                  ParameterOptions options = {});

  // The unit; it lives as long as the context. ERRORS: InvalidArgument for
  // axes, placements, layouts, dtypes or a divisor that do not fit, naming unit
  // and parameter, a parent of another context, or a name that is taken;
  // FailedPrecondition after Context::Prepare; what an earlier Build returned.
  absl::StatusOr<Unit*> Build();

 private:
  absl::StatusOr<Unit*> DoBuild();
  absl::StatusOr<internal::DataParallelAxes> FindAxes() const;

  friend class Context;
  UnitBuilder(internal::Runtime& runtime, absl::string_view name,
              UnitOptions options);

  internal::Runtime& runtime_;
  std::string name_;
  UnitOptions options_;
  std::vector<Unit::Parameter> parameters_;
  absl::Status argument_error_;  // the first of Add
  absl::Status status_;          // what Build returned
};

}  // namespace tessera

#endif  // TESSERA_FSDP_UNIT_H_
