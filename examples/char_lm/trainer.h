#ifndef CHAR_LM_TRAINER_H_
#define CHAR_LM_TRAINER_H_

#include "absl/status/statusor.h"
#include "char_lm/options.h"
#include "char_lm/text.h"
#include "char_lm/train_rank.h"

namespace char_lm {

// Trains on as many threads as the mesh has ranks, with a GPU each where
// options.on_gpus(); where options.process is there, as that one of so many
// processes, whose result is its own.
absl::StatusOr<TrainResult> Train(const Options& options, const Text& text,
                                  const Observer& observer);

}  // namespace char_lm

#endif  // CHAR_LM_TRAINER_H_
