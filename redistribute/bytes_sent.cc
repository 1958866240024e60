#include "tessera/redistribute/bytes_sent.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "tessera/base/checked_math.h"
#include "tessera/redistribute/exchange.h"

namespace tessera::internal {
namespace {

// Calls `visit` with all coordinates along the step's axes, 0 along the others:
// of the ranks that differ along those none holds more.
void ForEachOfGroup(const Step& step,
                    absl::FunctionRef<void(const MeshCoords&)> visit) {
  const DeviceMesh& mesh = step.before.mesh();
  MeshCoords coords(mesh.num_axes(), 0);
  const auto advance = [&] {
    for (int axis : step.axes) {
      if (++coords[axis] < mesh.axis(axis).size) return true;
      coords[axis] = 0;
    }
    return false;
  };
  do {
    visit(coords);
  } while (advance());
}

int64_t ElementsOf(const Box& box) {
  int64_t elements = 1;
  for (const Interval& interval : box) elements *= interval.size();
  return elements;
}

// Every rank sends its piece to every other one.
int64_t SentInAllGather(const Step& step) {
  return SaturatingMul(step.group_size() - 1, step.before.MostElements());
}

// A rank sends all but what it keeps.
int64_t SentInScatter(const Step& step) {
  int64_t most = 0;
  ForEachOfGroup(step, [&](const MeshCoords& coords) {
    const Region before = step.before.RegionAt(coords);
    const Region after = step.after.RegionAt(coords);
    Box kept;
    for (size_t dim = 0; dim < before.box.size(); ++dim) {
      kept.push_back(Intersect(before.box[dim], after.box[dim]));
    }
    most = std::max(most, before.box_elements() - ElementsOf(kept));
  });
  return most;
}

// True if ExchangeOf may be asked.
bool IsSound(const Step& step) {
  if (step.before.HasPartial() || step.after.HasPartial()) return false;
  if (step.before.mesh() != step.after.mesh()) return true;
  return absl::c_is_permutation(step.axes,
                                ExchangeAxes(step.before, step.after));
}

int64_t SentInExchange(const Step& step) {
  int64_t most = 0;
  const DeviceMesh& mesh = step.before.mesh();
  for (int rank = mesh.offset(); rank < mesh.end_rank(); ++rank) {
    if (!mesh.Contains(rank)) continue;
    int64_t sent = 0;
    for (const BoxMessage& message : ExchangeOf(step, rank).sends) {
      sent = SaturatingAdd(sent, ElementsOf(message.box));
    }
    most = std::max(most, sent);
  }
  return most;
}

}  // namespace

int64_t BytesSent(const Step& step) {
  const auto bytes = [&](int64_t elements) {
    return SaturatingMul(elements, SizeOf(step.before.dtype()));
  };
  switch (step.kind) {
    case StepKind::kRelabel:
    case StepKind::kSlice:
    case StepKind::kFill:
    case StepKind::kScale:
      return 0;
    case StepKind::kAllGather:
      return bytes(SentInAllGather(step));
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll:
      if (step.group_size() > kMaxRanksAsked ||
          step.before.mesh() != step.after.mesh()) {
        return step.bytes_received;
      }
      return bytes(SentInScatter(step));
    case StepKind::kAllReduce:
      // What a rank sends in one half it receives in the other.
      return step.bytes_received;
    case StepKind::kExchange: {
      const int ranks =
          std::max(step.before.mesh().size(), step.after.mesh().size());
      if (ranks > kMaxRanksAsked || !IsSound(step)) return step.bytes_received;
      return bytes(SentInExchange(step));
    }
  }
  return 0;
}

}  // namespace tessera::internal
