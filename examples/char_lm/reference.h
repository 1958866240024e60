#ifndef CHAR_LM_REFERENCE_H_
#define CHAR_LM_REFERENCE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "char_lm/options.h"
#include "char_lm/text.h"

namespace char_lm {

// The losses per step of the same training in one process, without sharding or
// communication: every rank's and microbatch's gradient is computed in turn and
// combined in the order that Tessera documents. A run under Tessera must give
// these losses bit for bit, unless gradients are clipped, as the norm adds up
// in the order of shards, or ranks along "tp" add up norm gradients.
absl::StatusOr<std::vector<double>> TrainOracle(const Options& options,
                                                const Text& text);

// The losses per step on one rank, which sees all ranks' and microbatches'
// sequences as one big batch and does not round its gradient to the dtype of
// the weights. Equal to the above but for rounding, and what optimizers make of
// it.
absl::StatusOr<std::vector<double>> TrainBigBatch(const Options& options,
                                                  const Text& text);

}  // namespace char_lm

#endif  // CHAR_LM_REFERENCE_H_
