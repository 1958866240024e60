#include "tessera/fsdp/shard_states.h"

#include <cstddef>

#include "tessera/base/status_macros.h"

namespace tessera::internal {

ShardState::~ShardState() {
  if (stream_ != nullptr) memory_.ResetAfter(*stream_);
}

absl::Status ShardState::Allocate(const TensorView& weight,
                                  int values_per_element, Stream& stream) {
  const int64_t elements = weight.num_elements();
  TESSERA_ASSIGN_OR_RETURN(
      memory_, stream.device().Allocate(values_per_element * weight.num_bytes(),
                                        kOptimizerStateTag, &stream));
  stream_ = &stream;
  const TensorView all = TensorView::Flat(memory_.data(), weight.dtype(),
                                          values_per_element * elements);
  for (int64_t k = 0; k < values_per_element; ++k) {
    values_.push_back(all.Slice(0, {k * elements, (k + 1) * elements}));
  }
  return stream.device().kernels().Fill(stream, all, 0.0);
}

absl::StatusOr<ShardState*> ShardStates::FindOrMake(const OptimizerShard& shard,
                                                    int values_per_element,
                                                    Stream& stream) {
  const std::pair key(&shard.unit, shard.group);
  const auto [entry, is_new] = states_.try_emplace(key);
  if (!is_new || values_per_element == 0) return &entry->second;
  const absl::Status allocated =
      entry->second.Allocate(shard.weight, values_per_element, stream);
  if (allocated.ok()) return &entry->second;
  states_.erase(entry);
  return allocated;
}

}  // namespace tessera::internal
