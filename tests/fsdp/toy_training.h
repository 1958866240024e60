#ifndef TESSERA_TESTS_FSDP_TOY_TRAINING_H_
#define TESSERA_TESTS_FSDP_TOY_TRAINING_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/comm/comm_set.h"
#include "tessera/fsdp/context.h"
#include "tests/fsdp/toy_run.h"

namespace tessera::testing {

// What makes a step of the run's optimizer. LIFETIME: borrows the context.
using ToyStep = std::function<absl::Status()>;
absl::StatusOr<ToyStep> MakeToyStep(const ToyRun& run, Context& context);

// The program of one rank over its units.
class ToyRank {
 public:
  // The rank of `comms`, which computes on `stream`, on any backend.
  static absl::StatusOr<std::unique_ptr<ToyRank>> Create(const ToyRun& run,
                                                         CommSet& comms,
                                                         Stream& stream);

  Context& context() { return *context_; }
  Unit& unit(int u) { return *units_[u]; }

  // A launch that reads the weights of unit u, which is open.
  absl::Status UseWeights(int u);

  // Hooks around all units, in order and in reverse, children inside their
  // parents. Forward fails where a weight that is gathered is not
  // `expected_weights` to the bit.
  absl::Status Forward(const ToyValues& expected_weights);
  absl::Status Backward(int step, int microbatch,
                        std::optional<bool> is_last = std::nullopt);

  // One step: all microbatches from weights that are `expected_weights`, the
  // optimizer, zeroing.
  absl::Status TrainStep(int step, const ToyValues& expected_weights);

  // Fails where this rank's piece of a main gradient (weight) differs from the
  // expected whole in any bit.
  absl::Status CheckGradients(const ToyValues& expected);
  absl::Status CheckWeights(const ToyValues& expected);

 private:
  ToyRank(const ToyRun& run, DeviceMesh mesh, int rank, Stream& stream)
      : run_(run), mesh_(std::move(mesh)), rank_(rank), stream_(stream) {}

  // In registration order; of -1: the roots.
  std::vector<int> ChildrenOf(int u) const;
  // Units use their weights around those inside, too.
  absl::Status ForwardUnit(int u, const ToyValues& expected);
  absl::Status BackwardUnit(int u, int step, int microbatch,
                            std::optional<bool> is_last);
  absl::Status OpenForward(int u, const ToyValues& expected);
  absl::Status WriteGradients(int u, int step, int microbatch);
  absl::Status Launch(const LaunchDescriptor& descriptor, LaunchBody body);
  absl::Status CheckPiece(const ShardedTensor& tensor,
                          const std::vector<double>& expected,
                          absl::string_view what);

  const ToyRun& run_;
  const DeviceMesh mesh_;
  const int rank_;
  Stream& stream_;
  std::unique_ptr<Context> context_;
  std::vector<Unit*> units_;
  ToyStep optimizer_step_;  // null before the first step
};

// Trains under Tessera and compares with `expected` after every step, on every
// rank, bit for bit.
absl::Status TrainAndCompare(const ToyRun& run, const ToyHistory& expected);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_FSDP_TOY_TRAINING_H_
