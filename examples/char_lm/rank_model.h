#ifndef CHAR_LM_RANK_MODEL_H_
#define CHAR_LM_RANK_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "char_lm/model.h"
#include "char_lm/options.h"
#include "char_lm/parameter.h"
#include "char_lm/text.h"
#include "char_lm/unit_values.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/stream.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/unit.h"

namespace char_lm {

// The model of one rank: its units in Tessera and its activations. It computes
// in f32 on the host, whatever keeps the weights: see UnitValues.
//
// Along the axis "tp" ranks have the same data and weights. Each computes its
// part of the rows of every layer norm, which are then gathered, and everything
// else as the others do; so its gradients of norms are parts of a sum, which
// NormGradients lists, and all other gradients are whole.
class RankModel {
 public:
  // Adds the units. LIFETIME: borrows all but the options.
  static absl::StatusOr<std::unique_ptr<RankModel>> Create(
      const Options& options, tessera::Context& context,
      tessera::CommSet& comms, tessera::Stream& compute);

  absl::Status Initialize(uint64_t seed);

  // Runs one microbatch on the compute stream. Returns its loss.
  absl::StatusOr<double> ForwardBackward(Batch batch);

  // The main gradients of all norms.
  absl::StatusOr<std::vector<tessera::ShardedTensor>> NormGradients() const;

 private:
  RankModel(const Options& options, tessera::Stream& compute);

  absl::StatusOr<tessera::Unit*> AddUnit(
      tessera::Context& context, absl::string_view name,
      const std::vector<ParameterSpec>& specs, tessera::UnitOptions options);
  // Chooses the stream that the model computes on, and what it computes with.
  absl::Status PrepareToCompute(const Options& options);

  absl::Status Launch(absl::string_view name, std::function<void()> body);
  // The rows of a matrix that ranks along "tp" computed, on all of them.
  absl::Status GatherRows(std::vector<float>& matrix);

  absl::Status Forward();
  absl::Status BlockForward(size_t b);
  absl::Status Backward();
  absl::Status BlockBackward(size_t b);

  const Model model_;
  const tessera::DType dtype_;
  tessera::Stream& compute_;
  // A CPU's, beside a GPU's `compute_`; else null.
  std::unique_ptr<tessera::CpuDevice> host_device_;
  std::unique_ptr<tessera::Stream> host_stream_;
  tessera::Stream* host_ = nullptr;  // what the model computes on
  tessera::Communicator* tensor_parallel_ = nullptr;  // null for one rank
  Rows norm_rows_;  // those that this rank computes
  tessera::Unit* root_ = nullptr;
  std::vector<tessera::Unit*> blocks_;

  Batch batch_;
  double loss_ = 0;
  std::vector<float> x_;
  std::vector<BlockActivations<float>> activations_;  // per block
  HeadActivations<float> head_;
  Workspace<float> work_;
  std::optional<UnitValues> root_values_;
  std::optional<UnitValues> block_values_;  // of the one that computes
};

}  // namespace char_lm

#endif  // CHAR_LM_RANK_MODEL_H_
