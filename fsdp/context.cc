#include "tessera/fsdp/context.h"

#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/agreement.h"
#include "tessera/fsdp/data_parallel_axes.h"
#include "tessera/fsdp/parameter_group.h"
#include "tessera/fsdp/power_of_two.h"
#include "tessera/fsdp/runtime.h"

namespace tessera {
namespace {

using internal::ParameterGroup;
using internal::Runtime;

absl::Status CheckOverlap(const OverlapOptions& overlap) {
  if (overlap.prefetch < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fsdp: overlap.prefetch is ", overlap.prefetch, ", want at least 0"));
  }
  if (overlap.gradients_in_flight < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("fsdp: overlap.gradients_in_flight is ",
                     overlap.gradients_in_flight, ", want at least 1"));
  }
  return absl::OkStatus();
}

absl::string_view ReleaseName(ReleaseWeights release) {
  switch (release) {
    case ReleaseWeights::kAfterForward:
      return "after forward";
    case ReleaseWeights::kAfterBackward:
      return "after backward";
    case ReleaseWeights::kNever:
      return "never";
  }
  return "";
}

void AppendPrefetch(absl::string_view what,
                    const std::optional<std::vector<int>>& units,
                    std::string& text) {
  if (!units.has_value()) return;
  absl::StrAppend(&text, what, "[", absl::StrJoin(*units, ","), "]");
}

// What an optimizer sees of a unit's group.
OptimizerShard ShardOf(const Unit& unit, int index,
                       const ParameterGroup& group) {
  const bool is_final =
      group.gradient_state() == ParameterGroup::GradientState::kFinal;
  return {.unit = unit,
          .group = index,
          .weight = group.FlatMainWeight(),
          .gradient = is_final ? group.FlatMainGradient()
                               : TensorView::Flat(
                                     nullptr, group.memory().accumulation, 0),
          .pieces = group.ShardPieces()};
}

}  // namespace

// Microbatch.

Microbatch::Microbatch(Runtime* runtime, bool is_last) : runtime_(runtime) {
  if (runtime->microbatch_is_last.has_value()) {
    runtime->Fail(
        absl::FailedPreconditionError("fsdp: a microbatch is open already"));
    runtime_ = nullptr;
    return;
  }
  runtime->microbatch_is_last = is_last;
}

Microbatch::Microbatch(Microbatch&& other) noexcept
    : runtime_(std::exchange(other.runtime_, nullptr)) {}

Microbatch::~Microbatch() {
  if (runtime_ != nullptr) runtime_->microbatch_is_last.reset();
}

absl::Status Microbatch::Finish() {
  if (runtime_ == nullptr) {
    return absl::FailedPreconditionError("fsdp: the microbatch is not open");
  }
  Runtime& runtime = *std::exchange(runtime_, nullptr);
  runtime.microbatch_is_last.reset();
  return runtime.status();
}

// Context.

Context::Context(std::unique_ptr<Runtime> runtime)
    : runtime_(std::move(runtime)) {}

Context::~Context() {
  // Others may wait for what this rank has not come to.
  runtime_->Fail(runtime_->status());
  // The compute stream is the caller's, and may still use what goes with this.
  runtime_->Fail(Synchronize());
}

absl::StatusOr<std::unique_ptr<Context>> Context::Create(FsdpOptions options,
                                                         Communicator& world,
                                                         Stream& compute) {
  const DeviceMesh& mesh = options.mesh;
  TESSERA_RETURN_IF_ERROR(mesh.RequireCoordsOf(world.rank()).status());
  TESSERA_RETURN_IF_ERROR(CheckOverlap(options.overlap));
  if (options.data_parallel_axes.empty()) {
    for (const MeshAxis& axis : mesh.axes()) {
      options.data_parallel_axes.push_back(axis.name);
    }
  }
  TESSERA_ASSIGN_OR_RETURN(
      auto axes, internal::DataParallelAxes::Create(
                     mesh, options.data_parallel_axes, options.cut_order));
  auto runtime = std::make_unique<Runtime>(std::move(options), std::move(axes),
                                           world, compute);
  for (const LentCommunicator& lent : runtime->options.communicators) {
    TESSERA_ASSIGN_OR_RETURN(const int axis,
                             runtime->options.mesh.FindAxis(lent.axis));
    if (lent.communicator == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "fsdp: the communicator lent for axis '", lent.axis, "' is null"));
    }
    TESSERA_RETURN_IF_ERROR(
        runtime->comms.Lend(runtime->options.mesh, {axis}, *lent.communicator));
  }
  TESSERA_RETURN_IF_ERROR(runtime->CreateStreams());
  return std::unique_ptr<Context>(new Context(std::move(runtime)));
}

UnitBuilder Context::NewUnit(absl::string_view name, UnitOptions options) {
  return UnitBuilder(*runtime_, name, std::move(options));
}

absl::Status Context::Prepare() {
  TESSERA_RETURN_IF_ERROR(status());
  if (runtime_->prepare_called) {
    return absl::FailedPreconditionError("fsdp: Prepare was called already");
  }
  runtime_->prepare_called = true;
  const absl::Status status = DoPrepare();
  runtime_->Fail(status);
  runtime_->prepared = status.ok();
  return status;
}

absl::Status Context::DoPrepare() {
  Runtime& runtime = *runtime_;
  const DeviceMesh& mesh = runtime.options.mesh;
  TESSERA_ASSIGN_OR_RETURN(Communicator * everyone, Everyone());
  TESSERA_RETURN_IF_ERROR(internal::CompareEntries(
      *everyone, "fsdp: ranks register different parameters",
      RegistrationText()));

  for (Stream* stream : runtime.Streams()) {
    for (int axis : UsedAxes()) {
      TESSERA_RETURN_IF_ERROR(
          runtime.comms.GetTogether(mesh, {axis}, *stream).status());
    }
  }
  const std::vector<UnitMemory> memory = unit_memory();
  const OverlapOptions& overlap = runtime.options.overlap;
  Device& device = runtime.compute.device();
  TESSERA_ASSIGN_OR_RETURN(
      runtime.weight_slots,
      internal::SlotPool::Create(PlanWeightSlots(memory, overlap), device,
                                 kUnshardedWeightTag));
  TESSERA_ASSIGN_OR_RETURN(
      runtime.gradient_slots,
      internal::SlotPool::Create(PlanGradientSlots(memory, overlap), device,
                                 kUnreducedGradTag));
  for (auto& unit : runtime.units) TESSERA_RETURN_IF_ERROR(unit->Prepare());
  return absl::OkStatus();
}

std::vector<int> Context::UsedAxes() const {
  std::set<int> used;
  for (const auto& unit : units()) {
    used.insert(unit->axes_.axes().begin(), unit->axes_.axes().end());
  }
  return {used.begin(), used.end()};
}

std::string Context::RegistrationText() const {
  const FsdpOptions& options = runtime_->options;
  std::string text = absl::StrCat(
      "context on mesh ", options.mesh.ToString(), " reduction ",
      options.reduction == GradientReduction::kMean ? "mean" : "sum",
      " missing gradients ",
      options.missing_gradients == MissingGradients::kZero ? "zero" : "error",
      " prefetch ", options.overlap.prefetch, " gradients in flight ",
      options.overlap.gradients_in_flight, " streams ",
      options.overlap.streams == CommunicationStreams::kShared ? "shared"
                                                               : "separate",
      "\n");
  for (const auto& unit : units()) {
    absl::StrAppend(&text, "unit '", unit->name(), "' in '",
                    unit->parent_ == nullptr ? "" : unit->parent_->name(),
                    "' axes ", unit->axes_.ToString(), " ",
                    unit->placements().ToString(), " divisor ",
                    absl::StrFormat("%.17g", unit->grad_divisor_), " release ",
                    ReleaseName(unit->release_));
    AppendPrefetch(" forward prefetch ", unit->forward_prefetch_, text);
    AppendPrefetch(" backward prefetch ", unit->backward_prefetch_, text);
    for (const auto& group : unit->groups_) {
      const GroupMemory& memory = group->memory();
      absl::StrAppend(&text, " wire=", DTypeName(memory.wire), "*",
                      group->wire_pre_scale(),
                      " accumulation=", DTypeName(memory.accumulation),
                      " main_weight=", DTypeName(memory.main_weight));
    }
    absl::StrAppend(&text, "\n");
    for (const Unit::Parameter& parameter : unit->parameters_) {
      absl::StrAppend(&text, "parameter '", unit->name(), ".", parameter.name,
                      "' ", parameter.layout.ToString(),
                      parameter.requires_grad ? "" : " frozen", "\n");
    }
  }
  return text;
}

Microbatch Context::OpenMicrobatch(MicrobatchOptions options) {
  return Microbatch(runtime_.get(), options.is_last);
}

absl::Status Context::set_loss_scale(double scale) {
  TESSERA_RETURN_IF_ERROR(internal::Prefixed(
      "fsdp: ", internal::CheckPowerOfTwo("loss scale", scale,
                                          internal::kLossScaleExponent)));
  runtime_->loss_scale = scale;
  return absl::OkStatus();
}

double Context::loss_scale() const { return runtime_->loss_scale; }

absl::Status Context::Remember(absl::string_view prefix, absl::Status status) {
  status = internal::Prefixed(prefix, status);
  runtime_->Fail(status);
  return status;
}

absl::Status Context::RememberAlone(absl::string_view prefix,
                                    absl::Status status) {
  status = internal::Prefixed(prefix, status);
  runtime_->FailAlone(status);
  return status;
}

absl::Status Context::VisitFinalUnits(
    absl::string_view what,
    absl::FunctionRef<absl::Status(Unit&, absl::Span<const int>)> visit) {
  TESSERA_RETURN_IF_ERROR(status());
  for (const auto& unit : units()) {
    TESSERA_RETURN_IF_ERROR(unit->CheckSteppable(what));
  }
  bool any_gradient = false;
  for (const auto& unit : units()) {
    const std::vector<int> groups = unit->FinalGroups();
    if (groups.empty()) continue;
    any_gradient = true;
    absl::Status status = runtime_->compute.Wait(unit->gradients_ready_);
    if (status.ok()) status = visit(*unit, groups);
    TESSERA_RETURN_IF_ERROR(RememberAlone(
        absl::StrCat("fsdp: ", what, ": unit '", unit->name(), "': "), status));
  }
  if (any_gradient) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "fsdp: ", what, ": no unit has a gradient since the last zeroing"));
}

absl::Status Context::Step(
    absl::FunctionRef<absl::Status(const OptimizerShard&, Stream&)> update) {
  return VisitFinalUnits(
      "Step", [&](Unit& unit, absl::Span<const int> groups) -> absl::Status {
        const StreamRange range(runtime_->compute, "step", unit.name());
        unit.ReleaseGathered();  // what is kept will be old
        for (int g : groups) {
          ParameterGroup& group = *unit.groups_[g];
          group.MainWeightChanges();
          TESSERA_RETURN_IF_ERROR(
              update(ShardOf(unit, g, group), runtime_->compute));
        }
        return unit.Refresh();
      });
}

absl::Status Context::StepTogether(
    absl::FunctionRef<absl::Status(absl::Span<const OptimizerShard>, Stream&)>
        update) {
  std::vector<Unit*> stepped;
  std::vector<OptimizerShard> shards;
  TESSERA_RETURN_IF_ERROR(VisitFinalUnits(
      "Step", [&](Unit& unit, absl::Span<const int> groups) -> absl::Status {
        unit.ReleaseGathered();  // what is kept will be old
        stepped.push_back(&unit);
        for (int g : groups) {
          ParameterGroup& group = *unit.groups_[g];
          group.MainWeightChanges();
          shards.push_back(ShardOf(unit, g, group));
        }
        return absl::OkStatus();
      }));
  const StreamRange range(runtime_->compute, "step", "all units");
  TESSERA_RETURN_IF_ERROR(
      RememberAlone("fsdp: Step: ", update(shards, runtime_->compute)));
  for (Unit* unit : stepped) {
    TESSERA_RETURN_IF_ERROR(
        Remember(absl::StrCat("fsdp: Step: unit '", unit->name(), "': "),
                 unit->Refresh()));
  }
  return absl::OkStatus();
}

absl::Status Context::VisitGradients(
    absl::string_view what,
    absl::FunctionRef<absl::Status(const OptimizerShard&, Stream&)> visit) {
  return VisitFinalUnits(
      what, [&](Unit& unit, absl::Span<const int> groups) -> absl::Status {
        const StreamRange range(runtime_->compute, what, unit.name());
        for (int g : groups) {
          TESSERA_RETURN_IF_ERROR(
              visit(ShardOf(unit, g, *unit.groups_[g]), runtime_->compute));
        }
        return absl::OkStatus();
      });
}

absl::Status Context::SumOverRanks(const TensorView& x) {
  TESSERA_ASSIGN_OR_RETURN(Communicator * everyone, mesh_communicator());
  if (mesh().size() == 1) return absl::OkStatus();
  return Remember("fsdp: sum over ranks: ",
                  everyone->AllReduce(ReduceOp::kSum, x, x));
}

absl::StatusOr<std::vector<OptimizerShard>> Context::optimizer_shards() const {
  TESSERA_RETURN_IF_ERROR(CheckPrepared());
  std::vector<OptimizerShard> shards;
  for (const auto& unit : units()) {
    for (size_t g = 0; g < unit->groups_.size(); ++g) {
      if (!unit->groups_[g]->requires_grad()) continue;
      shards.push_back(ShardOf(*unit, static_cast<int>(g), *unit->groups_[g]));
    }
  }
  return shards;
}

absl::Status Context::ZeroGradients(ZeroGrad how) {
  TESSERA_RETURN_IF_ERROR(status());
  for (const auto& unit : units()) {
    if (!unit->in_backward_) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "fsdp: ZeroGradients: unit '", unit->name(), "' is inside a backward"));
  }
  for (const auto& unit : units()) {
    const absl::Status status = unit->ZeroGradients(how == ZeroGrad::kRelease);
    runtime_->Fail(status);
    TESSERA_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status Context::status() const { return runtime_->status(); }

absl::Status Context::Synchronize() {
  for (Stream* stream : runtime_->Streams()) {
    // The error is in the stream and comes back from status().
    stream->Synchronize().IgnoreError();
  }
  return status();
}

absl::Status Context::JoinStreams() {
  const std::vector<Stream*> streams = runtime_->Streams();
  Stream& compute = runtime_->compute;
  for (Stream* stream : streams) {
    if (stream != &compute) compute.Wait(stream->Record()).IgnoreError();
  }
  for (Stream* stream : streams) {
    if (stream != &compute) stream->Wait(compute.Record()).IgnoreError();
  }
  return status();
}

absl::Span<const std::unique_ptr<Unit>> Context::units() const {
  return runtime_->units;
}

Stream& Context::compute() const { return runtime_->compute; }

const DeviceMesh& Context::mesh() const { return runtime_->options.mesh; }

int Context::rank() const { return runtime_->rank; }

absl::Status Context::CheckPrepared() const {
  TESSERA_RETURN_IF_ERROR(status());
  if (runtime_->prepared) return absl::OkStatus();
  return absl::FailedPreconditionError("fsdp: the context is not prepared");
}

absl::StatusOr<Communicator*> Context::mesh_communicator() const {
  TESSERA_RETURN_IF_ERROR(CheckPrepared());
  return Everyone();
}

CommSet& Context::comms() const { return runtime_->comms; }

absl::StatusOr<Communicator*> Context::Everyone() const {
  std::vector<int> all_axes(mesh().num_axes());
  std::iota(all_axes.begin(), all_axes.end(), 0);
  return runtime_->comms.Get(mesh(), all_axes, runtime_->compute);
}

std::vector<UnitMemory> Context::unit_memory() const {
  std::vector<UnitMemory> memory;
  for (const auto& unit : units()) memory.push_back(unit->memory_);
  return memory;
}

std::string Context::ToTable() const {
  std::string table;
  for (const auto& unit : units()) {
    absl::StrAppend(&table, "unit ", unit->name(), "  ",
                    unit->placements().ToString(), "  along ",
                    absl::StrJoin(unit->data_parallel_axes(), ","), "\n");
    for (const auto& group : unit->groups_) {
      absl::StrAppend(&table, group->buffers().flat_layout().ToTable());
    }
  }
  return table;
}

}  // namespace tessera
