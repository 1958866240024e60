#ifndef CHAR_LM_REFERENCE_H_
#define CHAR_LM_REFERENCE_H_

#include <vector>

#include "char_lm/options.h"
#include "char_lm/text.h"

namespace char_lm {

// The losses per step of the same training in one process, without sharding or
// communication: every rank's and microbatch's gradient is computed in turn and
// combined in the order that Tessera documents. A run under Tessera must give
// these losses bit for bit.
std::vector<double> TrainOracle(const Options& options, const Text& text);

// The losses per step of plain SGD on one rank, which sees all ranks' and
// microbatches' sequences as one big batch. Equal to the above but for
// rounding.
std::vector<double> TrainBigBatch(const Options& options, const Text& text);

}  // namespace char_lm

#endif  // CHAR_LM_REFERENCE_H_
