#include "tessera/fsdp/unit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/parameter_group.h"
#include "tessera/fsdp/power_of_two.h"
#include "tessera/fsdp/runtime.h"

namespace tessera {
namespace {

using internal::ParameterGroup;

absl::Status OutOfOrder(absl::string_view message) {
  return absl::FailedPreconditionError(message);
}

// f64 for f64 parameters, else f32.
DType AccumulationFor(DType parameter) {
  return parameter == DType::kF64 ? DType::kF64 : DType::kF32;
}

absl::Status CheckPrecision(const ParameterGroup::Spec& spec) {
  const DType parameter = spec.tensors.front().layout.dtype();
  if (!IsFloating(parameter)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", spec.tensors.front().name, "' has dtype ",
                     DTypeName(parameter), ", want a floating dtype"));
  }
  if (!IsFloating(spec.wire)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wire dtype ", DTypeName(spec.wire), ", want a floating dtype"));
  }
  for (DType dtype : {spec.accumulation, spec.main_weight}) {
    if (dtype != DType::kF32 && dtype != DType::kF64) {
      return absl::InvalidArgumentError(
          absl::StrCat("accumulation or main-weight dtype ", DTypeName(dtype),
                       ", want f32 or f64"));
    }
  }
  return internal::CheckPowerOfTwo("wire_pre_scale", spec.wire_pre_scale,
                                   internal::kWirePreScaleExponent);
}

}  // namespace

Unit::Unit(internal::Runtime& runtime, int index, std::string name,
           const UnitOptions& options, internal::DataParallelAxes axes,
           UnitPlacements placements)
    : runtime_(runtime),
      index_(index),
      name_(std::move(name)),
      parent_(options.parent),
      depth_(options.parent == nullptr ? 1 : options.parent->depth() + 1),
      axes_(std::move(axes)),
      placements_(std::move(placements)),
      release_(options.release),
      grad_divisor_(
          options.grad_divisor.value_or(runtime.options.grad_divisor)),
      gradient_hooks_(options.gradient_hooks) {}

Unit::~Unit() = default;

const std::string& Unit::parameter_name(ParameterId p) const {
  return parameters_[p].name;
}

const Layout& Unit::parameter_layout(ParameterId p) const {
  return parameters_[p].layout;
}

absl::Status Unit::Register(std::vector<Parameter> parameters,
                            const Precision& precision) {
  parameters_ = std::move(parameters);
  const FsdpOptions& defaults = runtime_.options;
  const double scale = defaults.reduction == GradientReduction::kMean
                           ? 1.0 / (axes_.num_ranks() * grad_divisor_)
                           : 1.0 / grad_divisor_;
  const bool is_normal = scale >= std::numeric_limits<float>::min() &&
                         scale <= std::numeric_limits<float>::max();
  if (!is_normal) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grad_divisor is ", grad_divisor_, ": gradients would be scaled by ",
        scale, ", want a positive normal f32"));
  }

  // Groups in the order in which their first parameter comes.
  std::vector<ParameterGroup::Spec> specs;
  std::vector<int> group_of(parameters_.size());
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const Parameter& parameter = parameters_[p];
    const DType dtype = parameter.layout.dtype();
    auto spec = std::find_if(
        specs.begin(), specs.end(), [&](const ParameterGroup::Spec& s) {
          return s.tensors.front().layout.dtype() == dtype &&
                 s.requires_grad == parameter.requires_grad;
        });
    if (spec == specs.end()) {
      const DType accumulation =
          precision.accumulation.value_or(AccumulationFor(dtype));
      spec = specs.insert(
          specs.end(),
          {.tensors = {},
           .parameters = {},
           .placements = placements_,
           .wire = precision.wire.value_or(dtype),
           .accumulation = accumulation,
           .main_weight = precision.main_weight.value_or(accumulation),
           .requires_grad = parameter.requires_grad,
           .scale = scale,
           .wire_pre_scale = precision.wire_pre_scale});
    }
    group_of[p] = static_cast<int>(spec - specs.begin());
    parameters_[p].index = static_cast<int>(spec->tensors.size());
    spec->tensors.push_back({parameter.name, parameter.layout});
    spec->parameters.push_back(static_cast<ParameterId>(p));
  }
  for (ParameterGroup::Spec& spec : specs) {
    TESSERA_RETURN_IF_ERROR(CheckPrecision(spec));
    TESSERA_ASSIGN_OR_RETURN(
        std::unique_ptr<ParameterGroup> group,
        ParameterGroup::Create(defaults.mesh, axes_.axes(), axes_.cut_axes(),
                               std::move(spec)));
    groups_.push_back(std::move(group));
  }
  for (size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p].group = groups_[group_of[p]].get();
  }
  memory_ = {.depth = depth_, .release = release_, .groups = {}};
  for (const auto& group : groups_) memory_.groups.push_back(group->memory());
  return absl::OkStatus();
}

absl::Status Unit::Prepare() {
  for (auto& group : groups_) {
    TESSERA_RETURN_IF_ERROR(
        group->AllocateWeights(runtime_.rank, runtime_.compute));
  }
  weights_ready_ = runtime_.compute.Record();
  return absl::OkStatus();
}

absl::Status Unit::SetPrefetch(absl::Span<Unit* const> next,
                               PrefetchList& list) {
  const auto refuse = [this](absl::StatusCode code, absl::string_view why) {
    return absl::Status(
        code, absl::StrCat("fsdp: unit '", name_, "' prefetch list: ", why));
  };
  if (runtime_.prepare_called) {
    return refuse(absl::StatusCode::kFailedPrecondition,
                  "set after Context::Prepare");
  }
  std::vector<int> units;
  for (const Unit* unit : next) {
    if (unit == nullptr || &unit->runtime_ != &runtime_) {
      return refuse(absl::StatusCode::kInvalidArgument,
                    "found a unit that is null or of another context");
    }
    if (unit == this) {
      return refuse(absl::StatusCode::kInvalidArgument,
                    "found the unit itself, want others");
    }
    units.push_back(unit->index_);
  }
  list = std::move(units);
  return absl::OkStatus();
}

absl::Status Unit::SetForwardPrefetch(absl::Span<Unit* const> next) {
  return SetPrefetch(next, forward_prefetch_);
}

absl::Status Unit::SetBackwardPrefetch(absl::Span<Unit* const> next) {
  return SetPrefetch(next, backward_prefetch_);
}

// Hooks.

void Unit::BeforeForward(ForwardKind kind) {
  runtime_.RunHook(*this, "BeforeForward",
                   [this, kind] { return DoBeforeForward(kind); });
}

void Unit::AfterForward() {
  runtime_.RunHook(*this, "AfterForward", [this] { return DoAfterForward(); });
}

void Unit::BeforeBackward() {
  runtime_.RunHook(*this, "BeforeBackward",
                   [this] { return DoBeforeBackward(); });
}

void Unit::AfterBackward(std::optional<bool> is_last) {
  runtime_.RunHook(*this, "AfterBackward", [&] {
    return DoAfterBackward(
        is_last.value_or(runtime_.microbatch_is_last.value_or(true)));
  });
}

absl::Status Unit::DoBeforeForward(ForwardKind kind) {
  if (!runtime_.prepared) return OutOfOrder("the context is not prepared");
  if (in_forward_ || in_recompute_) {
    return OutOfOrder("a forward is open already");
  }
  if (parent_ != nullptr && !parent_->open()) {
    return OutOfOrder(absl::StrCat("its parent '", parent_->name(),
                                   "' is in neither forward nor backward"));
  }
  if (in_backward_) {
    in_recompute_ = true;
    runtime_.compute.BeginRange("recompute", name_);
    return absl::OkStatus();
  }
  if (kind == ForwardKind::kTraining && parent_ != nullptr &&
      parent_->in_forward_ &&
      parent_->forward_kind_ == ForwardKind::kInference) {
    return OutOfOrder(absl::StrCat("a forward for training, but its parent '",
                                   parent_->name(),
                                   "' is in a forward for inference"));
  }
  TESSERA_RETURN_IF_ERROR(UseWeights());
  runtime_.compute.BeginRange("forward", name_);
  in_forward_ = true;
  forward_kind_ = kind;
  runtime_.backward_order.EndPass();
  return Prefetch(forward_prefetch_, runtime_.forward_order);
}

absl::Status Unit::DoAfterForward() {
  if (in_recompute_) {
    in_recompute_ = false;
    runtime_.compute.EndRange();
    return absl::OkStatus();
  }
  if (!in_forward_) return OutOfOrder("no forward is open");
  TESSERA_RETURN_IF_ERROR(CheckChildrenClosed());
  in_forward_ = false;
  runtime_.compute.EndRange();
  if (forward_kind_ == ForwardKind::kTraining) ++outstanding_;
  if (ReleasesGathered()) ReleaseGathered();
  return absl::OkStatus();
}

absl::Status Unit::DoBeforeBackward() {
  if (in_forward_) return OutOfOrder("a forward is open");
  if (in_backward_) return OutOfOrder("a backward is open already");
  if (outstanding_ == 0) return OutOfOrder("no forward is outstanding");
  if (parent_ != nullptr && !parent_->in_backward_) {
    return OutOfOrder(
        absl::StrCat("its parent '", parent_->name(), "' is not in backward"));
  }
  TESSERA_RETURN_IF_ERROR(UseWeights());
  runtime_.compute.BeginRange("backward", name_);
  TESSERA_RETURN_IF_ERROR(OpenGradients());
  in_backward_ = true;
  runtime_.forward_order.EndPass();
  return Prefetch(backward_prefetch_, runtime_.backward_order);
}

absl::Status Unit::DoAfterBackward(bool is_last) {
  if (!in_backward_) return OutOfOrder("no backward is open");
  if (in_recompute_) return OutOfOrder("its recomputation is still open");
  TESSERA_RETURN_IF_ERROR(CheckChildrenClosed());
  if (const absl::Status missing = CheckNoneMissing(); !missing.ok()) {
    // Other ranks may have theirs, and would wait.
    runtime_.comms.Abort(missing);
    return missing;
  }
  TESSERA_RETURN_IF_ERROR(ReduceGradients());
  runtime_.compute.EndRange();
  in_backward_ = false;
  --outstanding_;
  last_seen_ = last_seen_ || is_last;
  if (ReleasesGathered()) ReleaseGathered();
  if (!last_seen_ || outstanding_ > 0) return absl::OkStatus();
  last_seen_ = false;
  return Finalize();
}

// What hooks do.

absl::Status Unit::Refresh() {
  const StreamRange range(runtime_.compute, "refresh", name_);
  for (auto& group : groups_) {
    TESSERA_RETURN_IF_ERROR(
        group->RefreshModelWeight(runtime_.comms, runtime_.compute));
  }
  stale_ = false;
  weights_ready_ = runtime_.compute.Record();
  return absl::OkStatus();
}

absl::Status Unit::UseWeights() {
  runtime_.expected.clear();  // this one goes first
  TESSERA_RETURN_IF_ERROR(Gather());
  awaited_ = true;
  return weight_slot_ == nullptr ? absl::OkStatus()
                                 : runtime_.compute.Wait(weights_gathered_);
}

absl::Status Unit::Prefetch(const PrefetchList& given,
                            internal::GatherOrder& order) {
  order.Begin(index_);
  auto& expected = runtime_.expected;
  if (given.has_value()) {
    expected.assign(given->begin(), given->end());
  } else {
    const size_t most = runtime_.options.overlap.prefetch;
    for (int next = order.Next(index_); next >= 0 && expected.size() < most;
         next = order.Next(next)) {
      expected.push_back(next);
    }
  }
  for (int next : expected) {
    Unit& unit = *runtime_.units[next];
    if (unit.gathered_ || unit.memory_.UnshardedWeightBytes() == 0) continue;
    unit.MakeRoom();
    if (!runtime_.weight_slots.HasFree(next)) continue;
    TESSERA_RETURN_IF_ERROR(unit.Gather());
  }
  return absl::OkStatus();
}

// Frees a slot for this unit, where none is, by giving up weights that were
// gathered for a unit that did not come and is not expected any more.
void Unit::MakeRoom() {
  internal::SlotPool& slots = runtime_.weight_slots;
  for (const auto& unit : runtime_.units) {
    if (slots.HasFree(index_)) return;
    if (unit->awaited_ || unit->weight_slot_ == nullptr) continue;
    if (!slots.MayUse(index_, *unit->weight_slot_)) continue;
    if (absl::c_linear_search(runtime_.expected, unit->index_)) continue;
    unit->ReleaseGathered();
  }
}

absl::Status Unit::Gather() {
  if (gathered_) return absl::OkStatus();
  if (stale_) TESSERA_RETURN_IF_ERROR(Refresh());
  Stream& gather = *runtime_.gather;
  const StreamRange range(gather, "gather", name_);
  std::byte* memory = nullptr;
  if (memory_.UnshardedWeightBytes() > 0) {
    MakeRoom();
    TESSERA_ASSIGN_OR_RETURN(weight_slot_,
                             runtime_.weight_slots.Acquire(index_, gather));
    memory = static_cast<std::byte*>(weight_slot_->memory.data());
    TESSERA_RETURN_IF_ERROR(gather.Wait(weights_ready_));
  }
  for (auto& group : groups_) {
    TESSERA_RETURN_IF_ERROR(
        group->GatherWeight(memory, runtime_.comms, gather));
    memory += group->memory().UnshardedWeightBytes();
  }
  weights_gathered_ = gather.Record();
  gathered_ = true;
  return absl::OkStatus();
}

// Whether gathered weights are given up once a forward or backward has ended.
bool Unit::ReleasesGathered() const {
  switch (release_) {
    case ReleaseWeights::kAfterForward:
      return true;
    case ReleaseWeights::kAfterBackward:
      return outstanding_ == 0;
    case ReleaseWeights::kNever:
      return false;
  }
  return true;
}

void Unit::ReleaseGathered() {
  if (!gathered_) return;
  // Whoever writes to the weights next does so after they were read. An error
  // is in the stream.
  if (!awaited_) runtime_.compute.Wait(weights_gathered_).IgnoreError();
  awaited_ = false;
  for (auto& group : groups_) group->DropWeight();
  if (weight_slot_ != nullptr) {
    runtime_.weight_slots.Release(*std::exchange(weight_slot_, nullptr),
                                  runtime_.compute);
  }
  gathered_ = false;
}

absl::Status Unit::OpenGradients() {
  std::byte* memory = nullptr;
  if (memory_.UnreducedGradBytes() > 0) {
    TESSERA_ASSIGN_OR_RETURN(gradient_slot_, runtime_.gradient_slots.Acquire(
                                                 index_, runtime_.compute));
    memory = static_cast<std::byte*>(gradient_slot_->memory.data());
  }
  for (auto& group : groups_) {
    if (!group->requires_grad()) continue;
    TESSERA_RETURN_IF_ERROR(
        group->OpenGradient(memory, runtime_.rank, runtime_.compute));
    memory += group->memory().UnreducedGradBytes();
  }
  return absl::OkStatus();
}

absl::Status Unit::ReduceGradients() {
  for (auto& group : groups_) {
    if (!group->requires_grad()) continue;
    TESSERA_RETURN_IF_ERROR(group->FillUnaskedGradients(runtime_.compute));
  }
  Stream& reduce = *runtime_.reduce;
  const StreamRange range(reduce, "reduce", name_);
  TESSERA_RETURN_IF_ERROR(reduce.Wait(runtime_.compute.Record()));
  TESSERA_RETURN_IF_ERROR(reduce.Wait(gradients_ready_));
  for (auto& group : groups_) {
    if (!group->requires_grad()) continue;
    TESSERA_RETURN_IF_ERROR(
        group->AccumulateGradient(runtime_.loss_scale, runtime_.comms, reduce));
  }
  if (gradient_slot_ != nullptr) {
    runtime_.gradient_slots.Release(*std::exchange(gradient_slot_, nullptr),
                                    reduce);
  }
  gradients_ready_ = reduce.Record();
  return absl::OkStatus();
}

absl::Status Unit::Finalize() {
  Stream& finalize = *runtime_.finalize;
  const StreamRange range(finalize, "finalize", name_);
  TESSERA_RETURN_IF_ERROR(finalize.Wait(gradients_ready_));
  TESSERA_RETURN_IF_ERROR(RunGradientHook(
      "before_finalize", gradient_hooks_.before_finalize, finalize));
  for (auto& group : groups_) {
    if (!group->requires_grad()) continue;
    TESSERA_RETURN_IF_ERROR(group->FinalizeGradient(runtime_.comms, finalize));
  }
  TESSERA_RETURN_IF_ERROR(RunGradientHook(
      "after_finalize", gradient_hooks_.after_finalize, finalize));
  gradients_ready_ = finalize.Record();
  return absl::OkStatus();
}

absl::Status Unit::RunGradientHook(absl::string_view name,
                                   const GradientHook& hook,
                                   Stream& stream) const {
  if (hook == nullptr) return absl::OkStatus();
  std::vector<RestingGradient> gradients;
  for (ParameterId p = 0; p < num_parameters(); ++p) {
    const Parameter& parameter = parameters_[p];
    if (!parameter.requires_grad) continue;
    TESSERA_ASSIGN_OR_RETURN(ShardedTensor gradient,
                             parameter.group->MainGradient(parameter.index));
    gradients.push_back({p, std::move(gradient)});
  }
  const absl::Status status = internal::Prefixed(
      absl::StrCat(name, ": "), hook(*this, gradients, stream));
  // Other ranks may know nothing of it, and would wait.
  if (!status.ok()) runtime_.comms.Abort(status);
  return status;
}

absl::Status Unit::ZeroGradients(bool release) {
  const StreamRange range(runtime_.compute, "zero", name_);
  TESSERA_RETURN_IF_ERROR(runtime_.compute.Wait(gradients_ready_));
  for (auto& group : groups_) {
    TESSERA_RETURN_IF_ERROR(group->ZeroGradient(release, runtime_.compute));
  }
  gradients_ready_ = runtime_.compute.Record();
  return absl::OkStatus();
}

// Checks.

absl::Status Unit::CheckParameter(ParameterId p) const {
  TESSERA_RETURN_IF_ERROR(runtime_.status());
  if (p < 0 || p >= num_parameters()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fsdp: unit '", name_, "' has no parameter ", p,
                     ", its parameters are 0..", num_parameters() - 1));
  }
  if (!runtime_.prepared) {
    return OutOfOrder(absl::StrCat("fsdp: unit '", name_, "' parameter '",
                                   parameters_[p].name,
                                   "': the context is not prepared"));
  }
  return absl::OkStatus();
}

absl::Status Unit::CheckGradient(ParameterId p) const {
  TESSERA_RETURN_IF_ERROR(CheckParameter(p));
  if (parameters_[p].requires_grad) return absl::OkStatus();
  return OutOfOrder(absl::StrCat("fsdp: unit '", name_, "' parameter '",
                                 parameters_[p].name,
                                 "' is frozen and has no gradient"));
}

absl::Status Unit::CheckChildrenClosed() const {
  for (const auto& unit : runtime_.units) {
    if (unit->parent_ == this && unit->open()) {
      return OutOfOrder(
          absl::StrCat("unit '", unit->name(), "' inside it is still open"));
    }
  }
  return absl::OkStatus();
}

absl::Status Unit::CheckNoneMissing() const {
  if (runtime_.options.missing_gradients == MissingGradients::kZero) {
    return absl::OkStatus();
  }
  for (const Parameter& parameter : parameters_) {
    if (!parameter.requires_grad || parameter.group->asked(parameter.index)) {
      continue;
    }
    return OutOfOrder(absl::StrCat("parameter '", parameter.name,
                                   "' has no gradient: nobody asked for it "
                                   "since BeforeBackward"));
  }
  return absl::OkStatus();
}

absl::Status Unit::CheckSteppable(absl::string_view what) const {
  const auto refuse = [&](absl::string_view why) {
    return OutOfOrder(
        absl::StrCat("fsdp: ", what, ": unit '", name_, "' ", why));
  };
  if (open()) return refuse("is inside a forward or backward");
  if (outstanding_ > 0) {
    return refuse(
        absl::StrCat("has ", outstanding_, " forwards without a backward"));
  }
  for (const auto& group : groups_) {
    if (group->gradient_state() == ParameterGroup::GradientState::kPartial) {
      return refuse(
          "has a partial gradient: no backward since was the last one");
    }
  }
  return absl::OkStatus();
}

std::vector<int> Unit::FinalGroups() const {
  std::vector<int> groups;
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (groups_[g]->gradient_state() == ParameterGroup::GradientState::kFinal) {
      groups.push_back(g);
    }
  }
  return groups;
}

// Views.

absl::StatusOr<TensorView> Unit::weight(ParameterId p) const {
  TESSERA_RETURN_IF_ERROR(CheckParameter(p));
  const Parameter& parameter = parameters_[p];
  if (!open()) {
    return OutOfOrder(absl::StrCat("fsdp: unit '", name_, "' weight '",
                                   parameter.name,
                                   "': not inside a forward or backward"));
  }
  return parameter.group->Weight(parameter.index);
}

absl::StatusOr<TensorView> Unit::grad(ParameterId p, GradientWrite write) {
  TESSERA_RETURN_IF_ERROR(CheckGradient(p));
  const Parameter& parameter = parameters_[p];
  if (!in_backward_) {
    return OutOfOrder(absl::StrCat("fsdp: unit '", name_, "' gradient '",
                                   parameter.name, "': not inside a backward"));
  }
  return parameter.group->Gradient(parameter.index, write, runtime_.compute);
}

absl::StatusOr<ShardedTensor> Unit::main_grad(ParameterId p) const {
  TESSERA_RETURN_IF_ERROR(CheckGradient(p));
  TESSERA_RETURN_IF_ERROR(runtime_.compute.Wait(gradients_ready_));
  const Parameter& parameter = parameters_[p];
  absl::StatusOr<ShardedTensor> result =
      parameter.group->MainGradient(parameter.index);
  if (result.ok()) return result;
  return internal::Prefixed(absl::StrCat("fsdp: unit '", name_, "' parameter '",
                                         parameter.name, "' "),
                            result.status());
}

absl::StatusOr<ShardedTensor> Unit::main_weight(ParameterId p) const {
  TESSERA_RETURN_IF_ERROR(CheckParameter(p));
  return parameters_[p].group->MainWeight(parameters_[p].index);
}

// Loading.

absl::Status Unit::LoadWeight(ParameterId p, const TensorView& host_values) {
  TESSERA_RETURN_IF_ERROR(BeginLoad(p));
  const Parameter& parameter = parameters_[p];
  TESSERA_RETURN_IF_ERROR(CheckHostValues(
      p, host_values, parameter.layout.LocalMeta(runtime_.rank).shape()));
  TESSERA_RETURN_IF_ERROR(parameter.group->LoadMainWeight(
      parameter.index, host_values, runtime_.compute));
  return FinishLoad(p);
}

absl::Status Unit::ScatterWeight(ParameterId p, const TensorView& host_values) {
  TESSERA_RETURN_IF_ERROR(BeginLoad(p));
  const Parameter& parameter = parameters_[p];
  const DeviceMesh& mesh = runtime_.options.mesh;
  if (runtime_.rank == mesh.offset()) {
    TESSERA_RETURN_IF_ERROR(
        CheckHostValues(p, host_values, parameter.layout.shape()));
  }
  const absl::Status status = parameter.group->ScatterMainWeight(
      parameter.index, host_values, runtime_.comms, runtime_.compute);
  if (!status.ok()) {
    // What is enqueued may still read the values.
    runtime_.compute.Synchronize().IgnoreError();
    runtime_.Fail(status);
    return status;
  }
  return FinishLoad(p);
}

absl::Status Unit::InitializeWeight(
    ParameterId p, absl::FunctionRef<absl::Status(const WeightPiece&)> write) {
  TESSERA_RETURN_IF_ERROR(BeginLoad(p));
  const Parameter& parameter = parameters_[p];
  TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight,
                           parameter.group->MainWeight(parameter.index));
  const int64_t elements = weight.local().num_elements();
  if (elements > 0) {
    const DType dtype = weight.local().dtype();
    std::vector<std::byte> values(elements * SizeOf(dtype));
    TESSERA_RETURN_IF_ERROR(
        write({.region = weight.layout().RegionOf(runtime_.rank),
               .values = TensorView::Flat(values.data(), dtype, elements)}));
    TESSERA_RETURN_IF_ERROR(runtime_.compute.device().kernels().CopyFromHost(
        runtime_.compute, weight.local(), values.data()));
    TESSERA_RETURN_IF_ERROR(runtime_.compute.Synchronize());
  }
  return FinishLoad(p);
}

absl::Status Unit::BeginLoad(ParameterId p) {
  TESSERA_RETURN_IF_ERROR(CheckParameter(p));
  if (open() || outstanding_ > 0) {
    return OutOfOrder(absl::StrCat("fsdp: unit '", name_, "' parameter '",
                                   parameters_[p].name,
                                   "': loaded inside a forward or backward"));
  }
  ReleaseGathered();  // what is kept will be old
  return absl::OkStatus();
}

absl::Status Unit::CheckHostValues(ParameterId p, const TensorView& values,
                                   const Shape& wanted_shape) const {
  const Parameter& parameter = parameters_[p];
  TESSERA_ASSIGN_OR_RETURN(
      const TensorMeta wanted,
      TensorMeta::Create(parameter.group->main_weight_dtype(), wanted_shape));
  if (values.meta() == wanted && values.IsContiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "fsdp: unit '", name_, "' parameter '", parameter.name, "': values are ",
      values.ToString(), ", want contiguous ", wanted.ToString()));
}

absl::Status Unit::FinishLoad(ParameterId p) {
  internal::ParameterGroup& group = *parameters_[p].group;
  group.MainWeightChanges();
  // Where the main weight is gathered itself, there is nothing to refresh.
  stale_ = stale_ || group.memory().HasModelWeight();
  return runtime_.compute.Synchronize();
}

}  // namespace tessera
