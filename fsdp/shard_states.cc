#include "tessera/fsdp/shard_states.h"

#include <cstddef>

#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

int64_t ElementsOf(const std::vector<Interval>& runs) {
  int64_t elements = 0;
  for (const Interval& run : runs) elements += run.size();
  return elements;
}

}  // namespace

ShardState::~ShardState() {
  if (stream_ != nullptr) memory_.ResetAfter(*stream_);
}

absl::Status ShardState::Allocate(DType dtype, std::vector<Interval> runs,
                                  int values_per_element, Stream& stream) {
  runs_ = std::move(runs);
  const int64_t elements = ElementsOf(runs_);
  TESSERA_ASSIGN_OR_RETURN(
      memory_,
      stream.device().Allocate(values_per_element * elements * SizeOf(dtype),
                               kOptimizerStateTag, &stream));
  stream_ = &stream;
  const TensorView all =
      TensorView::Flat(memory_.data(), dtype, values_per_element * elements);
  for (int64_t k = 0; k < values_per_element; ++k) {
    values_.push_back(all.Slice(0, {k * elements, (k + 1) * elements}));
  }
  return stream.device().kernels().Fill(stream, all, 0.0);
}

TensorView ShardState::Values(int k, Interval range) const {
  int64_t before = 0;  // values of the runs in front
  for (const Interval& run : runs_) {
    if (range.end <= run.end) {
      const int64_t begin = before + range.begin - run.begin;
      return values_[k].Slice(0, {begin, begin + range.size()});
    }
    before += run.size();
  }
  return {};
}

absl::StatusOr<ShardState*> ShardStates::FindOrMake(const OptimizerShard& shard,
                                                    std::vector<Interval> runs,
                                                    int values_per_element,
                                                    Stream& stream) {
  const std::pair key(&shard.unit, shard.group);
  const auto [entry, is_new] = states_.try_emplace(key);
  if (!is_new || values_per_element == 0) return &entry->second;
  const absl::Status allocated = entry->second.Allocate(
      shard.weight.dtype(), std::move(runs), values_per_element, stream);
  if (allocated.ok()) return &entry->second;
  states_.erase(entry);
  return allocated;
}

}  // namespace tessera::internal
