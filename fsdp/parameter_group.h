#ifndef TESSERA_FSDP_PARAMETER_GROUP_H_
#define TESSERA_FSDP_PARAMETER_GROUP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/comm_set.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/dbuffer/dbuffer.h"
#include "tessera/fsdp/memory_plan.h"
#include "tessera/fsdp/optimizer_shard.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/placements.h"
#include "tessera/fsdp/unit.h"

namespace tessera::internal {

// The parameters of one unit that share a dtype and a requires-grad flag, and
// their buffers. It knows what each operation does to the buffers; on which
// stream and when is the unit's business. All functions enqueue on the stream
// they get.
//
// Buffers: main_weight (optimizer placements), model_weight (parameter
// placements; the same buffer where dtype and placements agree), main_grad
// (gradient placements, or optimizer placements once final), and in slots the
// gathered weight and the unreduced gradient.
class ParameterGroup {
 public:
  struct Spec {
    std::vector<BufferGroup::Tensor> tensors;
    std::vector<ParameterId> parameters;  // the tensors' ids in the unit
    UnitPlacements placements;
    DType wire;
    DType accumulation;
    DType main_weight;
    bool requires_grad;
    double scale;           // of every contribution to the main gradient
    double wire_pre_scale;  // as in Precision
  };

  enum class GradientState {
    kNone,     // zero, or not allocated
    kPartial,  // at the gradient placements, not final
    kFinal,    // at the optimizer placements
  };

  // `axes` and `cut_order` as in BufferGroup::Options.
  static absl::StatusOr<std::unique_ptr<ParameterGroup>> Create(
      const DeviceMesh& mesh, std::vector<int> axes, std::vector<int> cut_order,
      Spec spec);

  const BufferGroup& buffers() const { return *group_; }
  double wire_pre_scale() const { return spec_.wire_pre_scale; }
  DType main_weight_dtype() const { return spec_.main_weight; }
  bool requires_grad() const { return spec_.requires_grad; }
  GradientState gradient_state() const { return gradient_state_; }
  const GroupMemory& memory() const { return memory_; }

  // Allocates main and model weights, zero.
  absl::Status AllocateWeights(int rank, Stream& stream);

  // Writes this rank's part of tensor i of the main weight from host memory
  // that holds the whole tensor.
  absl::Status LoadMainWeight(int i, const TensorView& host_values,
                              Stream& stream);
  // Gives every rank its part of tensor i of the main weight from host memory
  // of the mesh's first rank that holds the whole tensor over all axes; it is
  // not looked at elsewhere. COLLECTIVE over the mesh.
  absl::Status ScatterMainWeight(int i, const TensorView& host_values,
                                 CommSet& comms, Stream& stream);
  // Says that somebody else wrote, or will write, to FlatMainWeight().
  void MainWeightChanges() { main_weight_changed_ = true; }
  // Makes the model weight what the main weight is, if that has changed.
  absl::Status RefreshModelWeight(CommSet& comms, Stream& stream);

  // Gathers the model weight into `memory`, or uses it where it is whole.
  absl::Status GatherWeight(void* memory, CommSet& comms, Stream& stream);
  void DropWeight() { weight_.reset(); }
  // Tensor i with its dims. REQUIRES: gathered.
  TensorView Weight(int i) const;

  // Opens the unreduced gradient in `memory`.
  absl::Status OpenGradient(void* memory, int rank, Stream& stream);
  absl::StatusOr<TensorView> Gradient(int i, GradientWrite write,
                                      Stream& stream);
  // Whether Gradient was called for tensor i since OpenGradient.
  bool asked(int i) const { return asked_[i]; }
  // Zeros for the parameters that nobody asked for.
  absl::Status FillUnaskedGradients(Stream& stream);
  // Reduces the unreduced gradient over the Flat axes in place and adds it to
  // the main gradient, which is allocated, or made partial again, as needed.
  // What it adds is divided by `loss_scale`.
  absl::Status AccumulateGradient(double loss_scale, CommSet& comms,
                                  Stream& stream);
  absl::Status FinalizeGradient(CommSet& comms, Stream& stream);
  absl::Status ZeroGradient(bool release, Stream& stream);

  absl::StatusOr<ShardedTensor> MainGradient(int i) const;
  absl::StatusOr<ShardedTensor> MainWeight(int i) const;
  TensorView FlatMainGradient() const { return main_grad_->local(); }
  TensorView FlatMainWeight() const { return main_weight_->local(); }
  // Where the parameters lie in both, as they lie there.
  std::vector<ShardPiece> ShardPieces() const;

 private:
  ParameterGroup(std::shared_ptr<const BufferGroup> group, Spec spec);

  // `placement` along every data-parallel axis.
  BufferPlacements Everywhere(BufferPlacement placement) const;
  // What the unreduced gradient is multiplied by: 1 where it is not reduced.
  double WirePreScale() const {
    return memory_.gradient_parts == 1 ? 1.0 : spec_.wire_pre_scale;
  }
  DType parameter_dtype() const { return group_->tensor(0).layout.dtype(); }
  const DBuffer& model_weight() const {
    return model_weight_.has_value() ? *model_weight_ : *main_weight_;
  }

  const std::shared_ptr<const BufferGroup> group_;
  const Spec spec_;
  const GroupMemory memory_;
  std::optional<DBuffer> main_weight_;
  std::optional<DBuffer> model_weight_;
  std::optional<DBuffer> main_grad_;
  std::optional<DBuffer> weight_;     // gathered, in a slot or the model weight
  std::optional<DBuffer> unreduced_;  // in a slot, during a backward
  std::vector<bool> asked_;           // per tensor, in this backward
  bool main_weight_changed_ = false;  // since the model weight was made
  GradientState gradient_state_ = GradientState::kNone;
};

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_PARAMETER_GROUP_H_
