#ifndef CHAR_LM_OPTIMIZER_H_
#define CHAR_LM_OPTIMIZER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "char_lm/muon.h"
#include "char_lm/options.h"
#include "char_lm/parameter.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/fsdp/whole_parameters.h"

namespace char_lm {

// With what the parameters of a run are updated.
tessera::SgdHyperparameters SgdOf(const Options& options);
// Those of Muon's other parameters, too.
tessera::AdamWHyperparameters AdamWOf(const Options& options);
MuonUpdate MuonOf(const Options& options);

// Whether --optimizer muon takes a parameter of this shape in this unit: the
// matrices of blocks, but not the embeddings of the root, "root".
bool IsMuons(absl::string_view unit, int num_dims);

// Updates the main weights of a context.
class ModelOptimizer {
 public:
  // LIFETIME: borrows the context.
  static absl::StatusOr<ModelOptimizer> Create(const Options& options,
                                               tessera::Context& context);

  absl::Status Step();

  // The most bytes that steps take on this rank, by tag, but for the workspace
  // of redistributions.
  absl::StatusOr<std::map<std::string, int64_t>> PlanMemory();

 private:
  ModelOptimizer(const Options& options, tessera::Context& context)
      : context_(&context),
        muon_(MuonOf(options)),
        on_gpus_(options.on_gpus()) {}

  tessera::Context* context_;
  MuonUpdate muon_;
  bool on_gpus_;
  std::optional<tessera::SgdOptimizer> sgd_;
  std::optional<tessera::AdamWOptimizer> adamw_;
  std::optional<tessera::WholeParameters> matrices_;
};

}  // namespace char_lm

#endif  // CHAR_LM_OPTIMIZER_H_
