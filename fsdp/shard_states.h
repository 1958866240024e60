#ifndef TESSERA_FSDP_SHARD_STATES_H_
#define TESSERA_FSDP_SHARD_STATES_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/device/device.h"
#include "tessera/fsdp/optimizer_shard.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// The tag under which optimizers allocate what they keep.
inline constexpr char kOptimizerStateTag[] = "optimizer_state";

namespace internal {

// What an optimizer keeps of one shard: some values for each of its elements,
// or of some runs of them, in the weight's dtype, that begin as zeros, padding
// included.
class ShardState {
 public:
  ShardState() = default;
  ShardState(const ShardState&) = delete;
  ShardState& operator=(const ShardState&) = delete;
  ~ShardState();

  // For elements of the weight in `runs`, which are ascending and disjoint.
  // LIFETIME: the stream outlives this.
  absl::Status Allocate(DType dtype, std::vector<Interval> runs,
                        int values_per_element, Stream& stream);

  // Value `k` of the elements in `range`. REQUIRES: they are inside one run.
  TensorView Values(int k, Interval range) const;
  int64_t steps = 0;  // updates so far

 private:
  Buffer memory_;
  Stream* stream_ = nullptr;  // what used the memory last
  std::vector<Interval> runs_;
  std::vector<TensorView> values_;
};

// The states of all shards, made as they are asked for.
class ShardStates {
 public:
  // For elements of the shard in `runs`: the same each time.
  // ERRORS: ResourceExhausted, with no state made; the stream's.
  absl::StatusOr<ShardState*> FindOrMake(const OptimizerShard& shard,
                                         std::vector<Interval> runs,
                                         int values_per_element,
                                         Stream& stream);

 private:
  std::map<std::pair<const Unit*, int>, ShardState> states_;
};

}  // namespace internal
}  // namespace tessera

#endif  // TESSERA_FSDP_SHARD_STATES_H_
