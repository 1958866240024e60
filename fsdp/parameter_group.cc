#include "tessera/fsdp/parameter_group.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/workspace.h"

namespace tessera::internal {
namespace {

DType NarrowestOf(std::initializer_list<DType> dtypes) {
  return *std::min_element(dtypes.begin(), dtypes.end(), [](DType a, DType b) {
    return SizeOf(a) < SizeOf(b);
  });
}

int CountFlat(const BufferPlacements& placements) {
  return static_cast<int>(
      std::count_if(placements.begin(), placements.end(),
                    [](const BufferPlacement& p) { return p.is_flat(); }));
}

GroupMemory MemoryOf(const BufferGroup& group,
                     const ParameterGroup::Spec& spec) {
  const auto parts = [&](const BufferPlacements& placements) {
    int64_t product = 1;
    for (int i = 0; i < group.NumFlat(placements); ++i) {
      product *= group.mesh().axis(group.cut_order()[i]).size;
    }
    return product;
  };
  return {.elements = group.flat_layout().num_elements(),
          .parameter_parts = parts(spec.placements.parameter),
          .gradient_parts = parts(spec.placements.gradient),
          .optimizer_parts = parts(spec.placements.optimizer),
          .parameter = group.tensor(0).layout.dtype(),
          .wire = spec.wire,
          .accumulation = spec.accumulation,
          .main_weight = spec.main_weight,
          .requires_grad = spec.requires_grad};
}

}  // namespace

ParameterGroup::ParameterGroup(std::shared_ptr<const BufferGroup> group,
                               Spec spec)
    : group_(std::move(group)),
      spec_(std::move(spec)),
      memory_(MemoryOf(*group_, spec_)),
      asked_(group_->num_tensors(), false) {}

absl::StatusOr<std::unique_ptr<ParameterGroup>> ParameterGroup::Create(
    const DeviceMesh& mesh, std::vector<int> axes, std::vector<int> cut_order,
    Spec spec) {
  const UnitPlacements& placements = spec.placements;
  BufferGroup::Options options;
  options.axes = std::move(axes);
  options.cut_order = std::move(cut_order);
  options.num_flat_axes =
      std::max({CountFlat(placements.parameter), CountFlat(placements.gradient),
                CountFlat(placements.optimizer)});
  options.narrowest =
      NarrowestOf({spec.tensors.front().layout.dtype(), spec.wire,
                   spec.accumulation, spec.main_weight});
  TESSERA_ASSIGN_OR_RETURN(
      std::shared_ptr<const BufferGroup> group,
      BufferGroup::Create(mesh, spec.tensors, std::move(options)));
  TESSERA_RETURN_IF_ERROR(group->Validate(placements.parameter));
  TESSERA_RETURN_IF_ERROR(group->Validate(placements.gradient));
  TESSERA_RETURN_IF_ERROR(group->Validate(placements.optimizer));
  return std::unique_ptr<ParameterGroup>(
      new ParameterGroup(std::move(group), std::move(spec)));
}

BufferPlacements ParameterGroup::Everywhere(BufferPlacement placement) const {
  return BufferPlacements(group_->axes().size(), placement);
}

absl::Status ParameterGroup::AllocateWeights(int rank, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(
      main_weight_,
      DBuffer::Allocate(group_, spec_.placements.optimizer, spec_.main_weight,
                        rank, stream.device(), kMainWeightTag, stream));
  if (memory_.HasModelWeight()) {
    TESSERA_ASSIGN_OR_RETURN(
        model_weight_,
        DBuffer::Allocate(group_, spec_.placements.parameter, parameter_dtype(),
                          rank, stream.device(), kModelWeightTag, stream));
  }
  return absl::OkStatus();
}

absl::Status ParameterGroup::LoadMainWeight(int i,
                                            const TensorView& host_values,
                                            Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(Layout layout, main_weight_->TensorLayout(i));
  const Region region = layout.RegionOf(main_weight_->rank());
  const int64_t first = region.flat.has_value() ? region.flat->begin : 0;
  const TensorView piece = main_weight_->TensorPiece(i);
  return stream.device().kernels().CopyFromHost(
      stream, piece,
      host_values.Flattened()
          .Slice(0, {first, first + piece.num_elements()})
          .data());
}

absl::Status ParameterGroup::ScatterMainWeight(int i,
                                               const TensorView& host_values,
                                               CommSet& comms, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight, MainWeight(i));
  // One rank that has everything.
  const Layout& target = weight.layout();
  TESSERA_ASSIGN_OR_RETURN(
      const DeviceMesh first,
      DeviceMesh::CreateAffine({}, target.mesh().offset()));
  TESSERA_ASSIGN_OR_RETURN(const Layout source,
                           Layout::Create(target.meta(), first, {}));
  TESSERA_ASSIGN_OR_RETURN(Plan plan,
                           MakePlan(source, target, Topology::LocalCpu()));
  // Before there is anything that one rank may fail in alone: its others wait
  // in groups that are there, and can be told.
  TESSERA_ASSIGN_OR_RETURN(
      PreparedPlan prepared,
      Prepare(std::make_shared<const Plan>(std::move(plan)), comms, stream));
  TESSERA_ASSIGN_OR_RETURN(
      ShardedTensor whole,
      ShardedTensor::Allocate(source, main_weight_->rank(), stream.device(),
                              kScatteredWeightTag));
  if (whole.local().num_elements() > 0) {
    TESSERA_RETURN_IF_ERROR(stream.device().kernels().CopyFromHost(
        stream, whole.local(), host_values.data()));
  }
  const absl::Status status = internal::WithWorkspace(
      prepared.workspace_bytes(), stream, [&](Workspace workspace) {
        return prepared.Execute(whole.local(), weight.local(), workspace);
      });
  whole.ResetAfter(stream);
  return status;
}

absl::Status ParameterGroup::RefreshModelWeight(CommSet& comms,
                                                Stream& stream) {
  if (!std::exchange(main_weight_changed_, false)) return absl::OkStatus();
  if (!model_weight_.has_value()) return absl::OkStatus();
  // Flat axes are prefixes of one cut order, so one range contains the other.
  const bool main_is_finer = group_->NumFlat(spec_.placements.optimizer) >
                             group_->NumFlat(spec_.placements.parameter);
  if (main_is_finer) {
    TESSERA_RETURN_IF_ERROR(model_weight_->Declare(spec_.placements.optimizer));
  }
  TESSERA_RETURN_IF_ERROR(main_weight_->CastTo(*model_weight_, stream));
  return model_weight_->ConvertTo(spec_.placements.parameter, comms, stream);
}

absl::Status ParameterGroup::GatherWeight(void* memory, CommSet& comms,
                                          Stream& stream) {
  const DBuffer& source = model_weight();
  const BufferPlacements whole = Everywhere(BufferPlacement::Replicate());
  const bool is_whole = memory_.parameter_parts == 1;
  TESSERA_ASSIGN_OR_RETURN(
      weight_,
      DBuffer::Wrap(group_, whole, parameter_dtype(), source.rank(),
                    is_whole ? source.local().data() : memory,
                    DBuffer::BytesFor(*group_, whole, parameter_dtype())));
  return is_whole ? absl::OkStatus() : source.CopyTo(*weight_, comms, stream);
}

TensorView ParameterGroup::Weight(int i) const {
  return weight_->WholeTensor(i);
}

absl::Status ParameterGroup::OpenGradient(void* memory, int rank,
                                          Stream& stream) {
  const BufferPlacements partial = Everywhere(BufferPlacement::Partial());
  TESSERA_ASSIGN_OR_RETURN(
      unreduced_,
      DBuffer::Wrap(group_, partial, spec_.wire, rank, memory,
                    DBuffer::BytesFor(*group_, partial, spec_.wire)));
  std::fill(asked_.begin(), asked_.end(), false);
  // The slot still holds what its last user left.
  return unreduced_->FillPadding(stream);
}

absl::StatusOr<TensorView> ParameterGroup::Gradient(int i, GradientWrite write,
                                                    Stream& stream) {
  const TensorView view = unreduced_->WholeTensor(i);
  if (write == GradientWrite::kAccumulate && !asked_[i]) {
    TESSERA_RETURN_IF_ERROR(stream.device().kernels().Fill(stream, view, 0.0));
  }
  asked_[i] = true;
  return view;
}

absl::Status ParameterGroup::FillUnaskedGradients(Stream& stream) {
  for (int i = 0; i < group_->num_tensors(); ++i) {
    if (asked_[i]) continue;
    TESSERA_RETURN_IF_ERROR(stream.device().kernels().Fill(
        stream, unreduced_->WholeTensor(i), 0.0));
  }
  return absl::OkStatus();
}

absl::Status ParameterGroup::AccumulateGradient(double loss_scale,
                                                CommSet& comms,
                                                Stream& stream) {
  Kernels& kernels = stream.device().kernels();
  const BufferPlacements& resting = spec_.placements.gradient;
  const double pre_scale = WirePreScale();
  if (pre_scale != 1) {
    TESSERA_RETURN_IF_ERROR(
        kernels.Scale(stream, unreduced_->local(), pre_scale));
  }
  TESSERA_RETURN_IF_ERROR(unreduced_->ConvertTo(resting, comms, stream));
  if (!main_grad_.has_value()) {
    TESSERA_ASSIGN_OR_RETURN(
        main_grad_, DBuffer::Allocate(group_, resting, spec_.accumulation,
                                      unreduced_->rank(), stream.device(),
                                      kMainGradTag, stream));
  } else if (gradient_state_ == GradientState::kFinal) {
    TESSERA_RETURN_IF_ERROR(main_grad_->ConvertTo(resting, comms, stream));
  }
  gradient_state_ = GradientState::kPartial;
  TESSERA_RETURN_IF_ERROR(
      kernels.AccumulateScaled(stream, main_grad_->local(), unreduced_->local(),
                               spec_.scale / (loss_scale * pre_scale)));
  unreduced_.reset();
  return absl::OkStatus();
}

absl::Status ParameterGroup::FinalizeGradient(CommSet& comms, Stream& stream) {
  gradient_state_ = GradientState::kFinal;
  return main_grad_->ConvertTo(spec_.placements.optimizer, comms, stream);
}

absl::Status ParameterGroup::ZeroGradient(bool release, Stream& stream) {
  gradient_state_ = GradientState::kNone;
  if (!main_grad_.has_value()) return absl::OkStatus();
  if (release) {
    main_grad_->Release(stream);
    main_grad_.reset();
    return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(main_grad_->Declare(spec_.placements.gradient));
  return main_grad_->FillZero(stream);
}

absl::StatusOr<ShardedTensor> ParameterGroup::MainGradient(int i) const {
  if (!main_grad_.has_value()) {
    return absl::FailedPreconditionError(
        "has no main gradient: none was written since it was released");
  }
  return main_grad_->Tensor(i).Sharded();
}

absl::StatusOr<ShardedTensor> ParameterGroup::MainWeight(int i) const {
  return main_weight_->Tensor(i).Sharded();
}

std::vector<ShardPiece> ParameterGroup::ShardPieces() const {
  const TensorView whole = FlatMainWeight();
  std::vector<ShardPiece> pieces;
  for (int i : group_->flat_layout().memory_order()) {
    const TensorView piece = main_weight_->TensorPiece(i);
    const int64_t begin =
        (piece.as<std::byte>() - whole.as<std::byte>()) / SizeOf(whole.dtype());
    pieces.push_back(
        {spec_.parameters[i], {begin, begin + piece.num_elements()}});
  }
  return pieces;
}

}  // namespace tessera::internal
