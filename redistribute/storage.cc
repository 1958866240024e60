#include "tessera/redistribute/storage.h"

namespace tessera::internal {
namespace {

// True if ranks hold other elements after the step than before it.
bool ChangesRegion(const Step& step) {
  switch (step.kind) {
    case StepKind::kSlice:
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      return true;
    case StepKind::kFill:
      return step.before.placement(step.axes.front()).is_shard();
    case StepKind::kRelabel:
    case StepKind::kScale:
    case StepKind::kAllReduce:
      return false;
  }
  return false;
}

Storage Next(Storage at, const Step& step, bool may_use_target) {
  if (step.kind == StepKind::kRelabel) return at;
  if (may_use_target) return Storage::kTarget;
  if (at == Storage::kSource) {
    return step.kind == StepKind::kSlice ? at : Storage::kNewBuffer;
  }
  return ChangesRegion(step) ? Storage::kNewBuffer : Storage::kWorkspace;
}

}  // namespace

std::vector<Storage> StorageOfSteps(absl::Span<const Step> steps) {
  int last_change = static_cast<int>(steps.size()) - 1;
  while (last_change >= 0 && !ChangesRegion(steps[last_change])) --last_change;

  std::vector<Storage> result;
  Storage at = Storage::kSource;
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    result.push_back(Next(at, steps[i], i >= last_change));
    at = result.back();
    if (at == Storage::kNewBuffer) at = Storage::kWorkspace;
  }
  return result;
}

}  // namespace tessera::internal
