#include "tessera/redistribute/plan_many.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/stable_hash.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/redistribute/text_table.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera {
namespace {

using internal::FormatMicroseconds;
using internal::TableRow;

bool Reduces(StepKind kind) {
  return kind == StepKind::kAllReduce || kind == StepKind::kReduceScatter;
}

// What steps that share a launch agree in.
struct Signature {
  StepKind kind;
  absl::InlinedVector<int, 2> axes;
  DeviceMesh mesh;
  DeviceMesh mesh_after;
  std::optional<std::pair<ReduceOp, DType>> reduction;

  friend bool operator==(const Signature&, const Signature&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Signature& s) {
    return H::combine(std::move(h), s.kind, s.axes, s.mesh, s.mesh_after);
  }
};

Signature SignatureOf(const Step& step) {
  Signature signature = {.kind = step.kind,
                         .axes = step.axes,
                         .mesh = step.before.mesh(),
                         .mesh_after = step.after.mesh(),
                         .reduction = std::nullopt};
  if (Reduces(step.kind)) {
    signature.reduction = {step.before.placement(step.axes.front()).op(),
                           step.before.dtype()};
  }
  return signature;
}

// Puts the communicating steps of plans in stages. Signatures are numbered.
class StageOrder {
 public:
  explicit StageOrder(absl::Span<const Plan> plans) {
    absl::flat_hash_map<Signature, int> numbers;
    for (const Plan& plan : plans) {
      Track& track = tracks_.emplace_back();
      for (size_t i = 0; i < plan.steps().size(); ++i) {
        const Step& step = plan.steps()[i];
        if (!Communicates(step.kind)) continue;
        const int number = static_cast<int>(numbers.size());
        track.steps.push_back(static_cast<int>(i));
        track.signatures.push_back(
            numbers.try_emplace(SignatureOf(step), number).first->second);
      }
    }
    num_signatures_ = numbers.size();
  }

  // The members of the next stage; none when there is nothing left.
  std::vector<StepOfPlan> Next() {
    const int signature = Choose();
    std::vector<StepOfPlan> members;
    for (size_t plan = 0; plan < tracks_.size(); ++plan) {
      Track& track = tracks_[plan];
      if (track.done() || track.ready() != signature) continue;
      members.push_back({static_cast<int>(plan), track.steps[track.next]});
      ++track.next;
    }
    return members;
  }

 private:
  // The communicating steps of a plan.
  struct Track {
    std::vector<int> steps;
    std::vector<int> signatures;
    size_t next = 0;

    bool done() const { return next == steps.size(); }
    int ready() const { return signatures[next]; }
  };

  // The signature of the next stage; -1 when there is nothing left.
  int Choose() const {
    // By signature: steps that are ready, and steps that wait for a step of
    // another signature in their plan.
    std::vector<int> ready(num_signatures_, 0);
    std::vector<int> waiting(num_signatures_, 0);
    for (const Track& track : tracks_) {
      if (track.done()) continue;
      ++ready[track.ready()];
      for (size_t i = track.next; i < track.signatures.size(); ++i) {
        if (track.signatures[i] != track.ready()) {
          ++waiting[track.signatures[i]];
        }
      }
    }
    int best = -1;
    for (const Track& track : tracks_) {
      if (track.done()) continue;
      const int signature = track.ready();
      if (best < 0 || std::pair(waiting[signature], -ready[signature]) <
                          std::pair(waiting[best], -ready[best])) {
        best = signature;
      }
    }
    return best;
  }

  std::vector<Track> tracks_;
  size_t num_signatures_ = 0;
};

// What a member of a stage saves where another one has it.
int64_t SharedTime(const Step& step, const Topology& topology) {
  if (step.kind == StepKind::kExchange) return topology.launch_ps();
  int64_t latency = std::numeric_limits<int64_t>::max();
  for (int axis : step.axes) {
    latency =
        std::min(latency, topology.LinkOf(step.before.mesh(), axis).latency_ps);
  }
  // An all-reduce is a reduce-scatter and an all-gather.
  const int64_t hops_per_message = step.kind == StepKind::kAllReduce ? 2 : 1;
  const int64_t hops = SaturatingMul(hops_per_message, step.messages);
  return SaturatingAdd(topology.launch_ps(), SaturatingMul(hops, latency));
}

// REQUIRES: at least one step, all of one signature.
Stage StageOf(std::vector<StepOfPlan> members, absl::Span<const Plan> plans,
              const Topology& topology) {
  Stage stage;
  absl::flat_hash_set<Redistribution> exchanges;
  for (const StepOfPlan& member : members) {
    const Step& step = plans[member.plan].steps()[member.step];
    stage.bytes_received =
        SaturatingAdd(stage.bytes_received, step.bytes_received);
    if (step.kind != StepKind::kExchange) {
      stage.messages = step.messages;
    } else if (exchanges.insert({step.before, step.after}).second) {
      stage.messages = SaturatingAdd(stage.messages, step.messages);
    }
    const int64_t shared =
        member == members.front() ? 0 : SharedTime(step, topology);
    stage.time_ps = SaturatingAdd(stage.time_ps,
                                  std::max<int64_t>(0, step.time_ps - shared));
  }
  stage.members = std::move(members);
  return stage;
}

int64_t SumOverPlans(absl::Span<const Plan> plans,
                     int64_t (Plan::*figure)() const) {
  int64_t sum = 0;
  for (const Plan& plan : plans) sum = SaturatingAdd(sum, (plan.*figure)());
  return sum;
}

struct LocalSteps {
  int64_t count = 0;
  int64_t time_ps = 0;
};

LocalSteps LocalStepsOf(absl::Span<const Plan> plans) {
  LocalSteps local;
  for (const Plan& plan : plans) {
    for (const Step& step : plan.steps()) {
      if (Communicates(step.kind)) continue;
      ++local.count;
      local.time_ps = SaturatingAdd(local.time_ps, step.time_ps);
    }
  }
  return local;
}

// "dp=2,tp=4", or where a step leads to another mesh "dp=2 -> tp=4@2".
std::string MeshesOf(const Step& step) {
  std::string text = step.before.mesh().ToString();
  if (step.after.mesh() == step.before.mesh()) return text;
  return absl::StrCat(text, " -> ", step.after.mesh().ToString());
}

}  // namespace

int64_t ManyPlan::bytes_received() const {
  return SumOverPlans(plans_, &Plan::bytes_received);
}

int64_t ManyPlan::time_ps() const {
  int64_t time = LocalStepsOf(plans_).time_ps;
  for (const Stage& stage : stages_) time = SaturatingAdd(time, stage.time_ps);
  return time;
}

int64_t ManyPlan::workspace_bytes() const {
  return SumOverPlans(plans_, &Plan::workspace_bytes);
}

int64_t ManyPlan::peak_bytes() const {
  return SumOverPlans(plans_, &Plan::peak_bytes);
}

uint64_t ManyPlan::fingerprint() const {
  std::string text = "many plans 1\n";
  for (const Plan& plan : plans_) {
    absl::StrAppend(&text, "plan ", absl::Hex(plan.fingerprint()), "\n");
  }
  for (const Stage& stage : stages_) {
    absl::StrAppend(&text, "stage");
    for (const StepOfPlan& member : stage.members) {
      absl::StrAppend(&text, " ", member.plan, ".", member.step);
    }
    absl::StrAppend(&text, "\n");
  }
  return internal::StableHash(text);
}

std::string ManyPlan::ToString() const {
  return absl::StrJoin(
      stages_, ", ", [&](std::string* out, const Stage& stage) {
        absl::StrAppend(out, step(stage.members.front()).Name(), " x",
                        stage.members.size());
      });
}

std::string ManyPlan::ToTable() const {
  std::vector<TableRow> rows;
  rows.push_back(
      {"step", "axes", "mesh", "tensors", "bytes", "messages", "time us"});
  int64_t messages = 0;
  for (const Stage& stage : stages_) {
    const Step& first = step(stage.members.front());
    messages = SaturatingAdd(messages, stage.messages);
    rows.push_back({std::string(StepKindName(first.kind)), first.AxisNames(),
                    MeshesOf(first), absl::StrCat(stage.members.size()),
                    absl::StrCat(stage.bytes_received),
                    absl::StrCat(stage.messages),
                    FormatMicroseconds(stage.time_ps)});
  }
  const LocalSteps local = LocalStepsOf(plans_);
  rows.push_back({absl::StrCat(local.count, " local"), "", "", "", "0", "0",
                  FormatMicroseconds(local.time_ps)});
  rows.push_back({"total", "", "", absl::StrCat(plans_.size()),
                  absl::StrCat(bytes_received()), absl::StrCat(messages),
                  FormatMicroseconds(time_ps())});
  return internal::FormatTable(rows, /*text_columns=*/3);
}

ManyPlan Coalesce(std::vector<Plan> plans, const Topology& topology) {
  StageOrder order(plans);
  std::vector<Stage> stages;
  for (auto members = order.Next(); !members.empty(); members = order.Next()) {
    stages.push_back(StageOf(std::move(members), plans, topology));
  }
  return ManyPlan(std::move(plans), std::move(stages));
}

absl::StatusOr<ManyPlan> PlanMany(absl::Span<const Redistribution> tensors,
                                  const Topology& topology,
                                  const PlanOptions& options) {
  std::vector<Plan> plans;
  plans.reserve(tensors.size());
  absl::flat_hash_map<Redistribution, size_t> first_with;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [known, is_new] = first_with.try_emplace(tensors[i], i);
    if (!is_new) {
      plans.push_back(plans[known->second]);
      continue;
    }
    absl::StatusOr<Plan> plan =
        MakePlan(tensors[i].source, tensors[i].target, topology, options);
    if (!plan.ok()) {
      return absl::Status(
          plan.status().code(),
          absl::StrCat("plan_many: tensor ", i, ": ", plan.status().message()));
    }
    plans.push_back(*std::move(plan));
  }
  return Coalesce(std::move(plans), topology);
}

}  // namespace tessera
