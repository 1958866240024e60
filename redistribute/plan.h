#ifndef TESSERA_REDISTRIBUTE_PLAN_H_
#define TESSERA_REDISTRIBUTE_PLAN_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/placement/layout.h"

namespace tessera {

// What one step of a redistribution does along its mesh axes. The first four
// are local, the others communicate. A collective may go over several axes,
// which then count as one, the first of them major: it finds or leaves all of
// them in the same placement, shards in this cutting order.
enum class StepKind : uint8_t {
  kRelabel,        // other placements for what every rank holds already
  kSlice,          // R -> S(d): keep one's piece
  kFill,           // R -> P(op), S(d) -> P(sum): the value among identities
  kScale,          // P(sum) <-> P(avg)
  kAllGather,      // S(d) -> R
  kReduceScatter,  // P(op) -> S(d)
  kAllReduce,      // P(op) -> R
  kAllToAll,       // S(d) -> S(e)
  kExchange,       // messages between any two layouts without Partial
};

inline constexpr StepKind kAllStepKinds[] = {
    StepKind::kRelabel,   StepKind::kSlice,     StepKind::kFill,
    StepKind::kScale,     StepKind::kAllGather, StepKind::kReduceScatter,
    StepKind::kAllReduce, StepKind::kAllToAll,  StepKind::kExchange};

// "relabel", "slice", ..., "exchange"; and "RL", "SL", "FI", "SC", "AG", "RS",
// "AR", "A2A", "XC".
absl::string_view StepKindName(StepKind kind);
absl::string_view StepKindShortName(StepKind kind);
// The inverse of StepKindName.
std::optional<StepKind> ParseStepKind(absl::string_view name);
constexpr bool Communicates(StepKind kind) {
  return kind >= StepKind::kAllGather;
}

// One step. Bytes and messages are the most that any rank sends or receives;
// a collective over n ranks counts n - 1 messages. Bytes are those of the
// direct algorithm, in which every rank gets each piece from its owner. What
// does not fit int64 counts as its greatest value.
//
// An exchange may lead to a layout on another mesh. It names all axes of
// before's mesh along which elements may move, maybe none; their order decides
// which replicas send. It counts the bytes that a rank does not hold before,
// and one message for each rank that it gets any from; the figures of a step
// may be bounds above these.
struct Step {
  StepKind kind = StepKind::kRelabel;
  absl::InlinedVector<int, 2> axes;  // mesh axes of `before`
  Layout before;
  Layout after;
  int64_t bytes_received = 0;
  int64_t messages = 0;
  int64_t time_ps = 0;  // predicted, picoseconds

  // Ranks that the axes span: the size of the groups of a collective.
  int64_t group_size() const;
  std::string AxisNames() const;  // "dp" or "dp,tp"
  std::string Name() const;       // "RS(dp)" or "RS(dp,tp)"
  friend bool operator==(const Step&, const Step&) = default;
};

// How a tensor gets from one layout to another: a value, the same on every
// rank. Every step's `before` is the `after` of the one before it. An exchange
// may lead to another mesh, on which all steps behind it are.
// Immutable; thread-safe.
class Plan {
 public:
  // REQUIRES: steps lead from source to target.
  Plan(Layout source, Layout target, std::vector<Step> steps)
      : source_(std::move(source)),
        target_(std::move(target)),
        steps_(std::move(steps)) {}

  const Layout& source() const { return source_; }
  const Layout& target() const { return target_; }
  absl::Span<const Step> steps() const { return steps_; }

  // Sums over the steps; `launches` counts those that communicate.
  int64_t bytes_received() const;
  int64_t launches() const;
  int64_t time_ps() const;

  // Per step the bytes that a rank needs for what is live during it but is
  // neither source nor target. At most two buffers are, what the step reads and
  // what it writes; steps that leave a rank its elements work in place, slices
  // of the source are views of it, and the last steps work in the target. Every
  // buffer counts as that of the rank whose is the largest: no rank needs more,
  // and on one mesh without ragged cuts the first rank needs as much.
  std::vector<int64_t> step_workspace_bytes() const;
  // The most that a step needs; 0 without steps.
  int64_t workspace_bytes() const;
  // Workspace, source and target, the latter two as they are largest.
  int64_t peak_bytes() const;

  // An xxh3 hash of what the plan does: of mesh, tensor, source, target and,
  // step by step, kind, axes and layout, as text. Prices do not count. The
  // same in every process, on every host and from every compiler, so that
  // ranks can compare plans: those that do not do the same differ, as far as
  // 64 bits tell.
  uint64_t fingerprint() const;

  // "[P(sum), S(0)] -RS(dp)-> [S(1), S(0)] -AG(tp)-> [S(1), R]"; a mesh is
  // named where a step leads to another: "[S(0)] -XC(dp)-> [S(1)] on 'tp=4@8'".
  std::string ToString() const;
  // One row per step: step, axes, before -> after, bytes, messages, workspace
  // in bytes, time; and below them the plan's own figures.
  std::string ToTable() const;

  friend bool operator==(const Plan&, const Plan&) = default;
  friend std::ostream& operator<<(std::ostream& os, const Plan& p) {
    return os << p.ToString();
  }

 private:
  Layout source_;
  Layout target_;
  std::vector<Step> steps_;
};

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_PLAN_H_
