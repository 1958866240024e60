#include "tests/redistribute/run_plans.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tessera/tensor/dtype.h"
#include "tessera/testing/reference_executor.h"
#include "tessera/testing/run_scheduled_ranks.h"
#include "tests/redistribute/reference.h"

namespace tessera::testing {
namespace {

// Bytes that no value of the reference is made of.
constexpr unsigned char kPoison = 0x7f;

// One piece on the host.
class Piece {
 public:
  explicit Piece(const TensorMeta& meta)
      : meta_(meta), bytes_(meta.num_bytes(), kPoison) {}

  TensorView view() { return TensorView(bytes_.data(), meta_); }

  void Set(absl::Span<const double> values) {
    VisitDType(meta_.dtype(), [&]<typename T>() {
      for (size_t i = 0; i < values.size(); ++i) {
        const T value = static_cast<T>(static_cast<float>(values[i]));
        std::memcpy(&bytes_[i * sizeof(T)], &value, sizeof(T));
      }
    });
  }

  // NaN where there is poison.
  std::vector<double> Get() const {
    std::vector<double> values(meta_.num_elements());
    VisitDType(meta_.dtype(), [&]<typename T>() {
      const std::vector<unsigned char> poison(sizeof(T), kPoison);
      for (size_t i = 0; i < values.size(); ++i) {
        T value;
        std::memcpy(&value, &bytes_[i * sizeof(T)], sizeof(T));
        const bool poisoned =
            std::memcmp(&value, poison.data(), sizeof(T)) == 0;
        values[i] = poisoned ? std::numeric_limits<double>::quiet_NaN()
                             : static_cast<float>(value);
      }
    });
    return values;
  }

 private:
  TensorMeta meta_;
  std::vector<unsigned char> bytes_;
};

// A piece on a device, as it was on the host.
absl::StatusOr<Buffer> CopyToDevice(Piece& piece, Stream& stream) {
  const TensorView view = piece.view();
  TESSERA_ASSIGN_OR_RETURN(
      Buffer buffer,
      stream.device().Allocate(view.num_bytes(), "piece", &stream));
  TESSERA_RETURN_IF_ERROR(stream.device().kernels().CopyFromHost(
      stream, TensorView(buffer.data(), view.meta()), view.data()));
  return buffer;
}

// Each plan on the next of `streams`. `Rank` is a LocalRank or the like.
template <typename Rank>
absl::Status RunRank(absl::Span<const Plan> plans,
                     absl::Span<Stream* const> streams, Rank& self,
                     Outcomes& outcomes) {
  std::vector<Piece> pieces;
  pieces.reserve(2 * plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    const Layout& from = plans[i].source();
    const Layout& to = plans[i].target();
    Stream& stream = *streams[i % streams.size()];
    RankOutcome& outcome = outcomes[i][self.rank];
    Piece& source = pieces.emplace_back(from.LocalMeta(self.rank));
    Piece& target = pieces.emplace_back(to.LocalMeta(self.rank));
    if (from.mesh().Contains(self.rank)) {
      source.Set(LocalValues(from, self.rank));
    }
    TESSERA_ASSIGN_OR_RETURN(Buffer in, CopyToDevice(source, stream));
    TESSERA_ASSIGN_OR_RETURN(Buffer out, CopyToDevice(target, stream));
    const TensorView result(out.data(), target.view().meta());
    self.device.ResetMemoryPeaks();
    self.comms.log().Clear();
    TESSERA_RETURN_IF_ERROR(Execute(plans[i],
                                    TensorView(in.data(), source.view().meta()),
                                    result, self.comms, stream));
    outcome.workspace_peak =
        self.device.memory().by_tag["workspace"].peak_bytes;
    outcome.collectives = self.comms.log().recent();
    TESSERA_RETURN_IF_ERROR(
        self.device.kernels().CopyToHost(stream, target.view().data(), result));
    in.ResetAfter(stream);
    out.ResetAfter(stream);
  }
  for (Stream* stream : streams) {
    TESSERA_RETURN_IF_ERROR(stream->Synchronize());
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    outcomes[i][self.rank].target = pieces[2 * i + 1].Get();
  }
  return absl::OkStatus();
}

std::string FaultInValues(const Plan& plan,
                          absl::Span<const RankOutcome> world) {
  std::vector<std::vector<double>> pieces;
  for (int rank : RanksOf(plan.target().mesh())) {
    pieces.push_back(world[rank].target);
  }
  return FindFault(plan.target(), pieces);
}

// The ranks that take part in a step.
std::set<int> Participants(const Step& step) {
  std::set<int> ranks;
  for (const Layout* layout : {&step.before, &step.after}) {
    const std::vector<int> some = RanksOf(layout->mesh());
    ranks.insert(some.begin(), some.end());
  }
  return ranks;
}

// True if a communicator of more than one rank takes the step.
bool IssuesCollective(const Step& step) {
  if (!Communicates(step.kind)) return false;
  if (step.before.mesh() != step.after.mesh())
    return Participants(step).size() > 1;
  return std::any_of(step.axes.begin(), step.axes.end(), [&](int axis) {
    return step.before.mesh().axis(axis).size > 1;
  });
}

CollectiveKind CollectiveOf(StepKind kind) {
  switch (kind) {
    case StepKind::kAllGather:
      return CollectiveKind::kAllGather;
    case StepKind::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case StepKind::kAllReduce:
      return CollectiveKind::kAllReduce;
    case StepKind::kAllToAll:
      return CollectiveKind::kAllToAll;
    default:
      return CollectiveKind::kSendRecv;
  }
}

// The most bytes that a rank receives in an exchange.
int64_t BytesOfExchange(const Step& step) {
  int64_t most = 0;
  for (int rank : RanksOf(step.after.mesh())) {
    most = std::max(most, CountNewElements(step.before, step.after, rank));
  }
  return most * SizeOf(step.before.dtype());
}

// What a step says is what the rank that receives most receives. Of an
// exchange, whose figures may be bounds, that is what is new to this rank.
std::string FaultInBytes(const Step& step, int64_t received) {
  int64_t wanted = step.bytes_received;
  if (step.kind == StepKind::kExchange) {
    wanted = BytesOfExchange(step);
    if (step.bytes_received < wanted) return "an exchange plans too little";
  }
  if (received == wanted) return "";
  return absl::StrCat(step.Name(), " received ", received, " bytes, want ",
                      wanted);
}

// Every rank issues the collectives of the steps in which it takes part.
std::string FaultInTraffic(const Plan& plan,
                           absl::Span<const RankOutcome> world) {
  std::vector<size_t> issued(world.size(), 0);
  for (const Step& step : plan.steps()) {
    if (!IssuesCollective(step)) continue;
    int64_t most = 0;
    for (int rank : Participants(step)) {
      const auto& collectives = world[rank].collectives;
      if (issued[rank] == collectives.size() ||
          collectives[issued[rank]].kind != CollectiveOf(step.kind)) {
        return absl::StrCat("rank ", rank, " does not issue ", step.Name());
      }
      most = std::max(most, collectives[issued[rank]++].bytes_received);
    }
    const std::string fault = FaultInBytes(step, most);
    if (!fault.empty()) return fault;
  }
  for (size_t rank = 0; rank < world.size(); ++rank) {
    if (issued[rank] == world[rank].collectives.size()) continue;
    return absl::StrCat("rank ", rank, " issued ",
                        world[rank].collectives.size(), " collectives, want ",
                        issued[rank]);
  }
  return "";
}

// True if some rank has the largest piece of every layout on the way: the one
// at coordinate 0, unless there are ragged cuts or two meshes.
bool IsWorkspaceExact(const Plan& plan) {
  return std::all_of(plan.steps().begin(), plan.steps().end(),
                     [](const Step& step) {
                       return step.before.mesh() == step.after.mesh() &&
                              (step.kind != StepKind::kExchange ||
                               (step.before.RaggedAxes().empty() &&
                                step.after.RaggedAxes().empty()));
                     });
}

bool TakesPart(const Plan& plan, int rank) {
  return plan.source().mesh().Contains(rank) ||
         plan.target().mesh().Contains(rank) ||
         std::any_of(plan.steps().begin(), plan.steps().end(),
                     [&](const Step& step) {
                       return step.after.mesh().Contains(rank);
                     });
}

std::string FaultInWorkspace(const Plan& plan,
                             absl::Span<const RankOutcome> world) {
  int64_t most = 0;
  for (size_t rank = 0; rank < world.size(); ++rank) {
    const int64_t peak = world[rank].workspace_peak;
    if (peak != 0 && !TakesPart(plan, static_cast<int>(rank))) {
      return absl::StrCat("rank ", rank, " outside the meshes takes memory");
    }
    most = std::max(most, peak);
  }
  const int64_t planned = plan.workspace_bytes();
  if (most == planned || (most < planned && !IsWorkspaceExact(plan))) return "";
  return absl::StrCat("workspace was ", most, " bytes, planned ",
                      plan.workspace_bytes());
}

// What is wrong with what came of `plan` on the ranks of the world.
std::string FaultIn(const Plan& plan, absl::Span<const RankOutcome> world) {
  std::string fault = FaultInValues(plan, world);
  if (fault.empty()) fault = FaultInTraffic(plan, world);
  if (fault.empty()) fault = FaultInWorkspace(plan, world);
  return fault;
}

}  // namespace

absl::StatusOr<Outcomes> RunPlans(int num_ranks, absl::Span<const Plan> plans,
                                  CpuStreams streams) {
  Outcomes outcomes(plans.size(), std::vector<RankOutcome>(num_ranks));
  LocalRunOptions options;
  options.device.streams = streams;
  TESSERA_RETURN_IF_ERROR(RunLocalRanks(
      num_ranks,
      [&](LocalRank& self) {
        return RunRank(plans, {&self.stream}, self, outcomes);
      },
      options));
  return outcomes;
}

namespace {

// What is wrong with what came of `plans`, or "".
std::string FindFaultIn(absl::Span<const Plan> plans,
                        const absl::StatusOr<Outcomes>& outcomes) {
  if (!outcomes.ok()) return outcomes.status().ToString();
  for (size_t i = 0; i < plans.size(); ++i) {
    const std::string fault = FaultIn(plans[i], (*outcomes)[i]);
    if (fault.empty()) continue;
    return absl::StrCat(plans[i].source().meta().ToString(), " on mesh '",
                        plans[i].source().mesh().ToString(), "' ",
                        plans[i].ToString(), ": ", fault);
  }
  return "";
}

absl::StatusOr<Outcomes> RunScheduledPlans(int num_ranks,
                                           absl::Span<const Plan> plans,
                                           uint64_t seed,
                                           const ScheduledRunner& run) {
  Outcomes outcomes(plans.size(), std::vector<RankOutcome>(num_ranks));
  TESSERA_RETURN_IF_ERROR(run(
      num_ranks,
      [&](ScheduledRank& self) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto second,
                                 self.device.NewStream("second"));
        TESSERA_ASSIGN_OR_RETURN(const auto third,
                                 self.device.NewStream("third"));
        return RunRank(plans, {&self.stream, second.get(), third.get()}, self,
                       outcomes);
      },
      {.seed = seed}, /*report=*/nullptr));
  return outcomes;
}

}  // namespace

std::string RunAndFindFault(int num_ranks, absl::Span<const Plan> plans,
                            CpuStreams streams) {
  return FindFaultIn(plans, RunPlans(num_ranks, plans, streams));
}

std::string RunScheduledAndFindFault(int num_ranks,
                                     absl::Span<const Plan> plans,
                                     uint64_t seed,
                                     const ScheduledRunner& run) {
  return FindFaultIn(plans, RunScheduledPlans(num_ranks, plans, seed, run));
}

std::string RunReferenceAndFindFault(const Plan& plan) {
  const Layout& from = plan.source();
  std::vector<Piece> sources;
  std::vector<Piece> targets;
  std::vector<TensorView> source_views;
  std::vector<TensorView> target_views;
  // Moving a piece leaves its bytes where they are.
  for (int rank : RanksOf(from.mesh())) {
    sources.emplace_back(from.LocalMeta(rank));
    sources.back().Set(LocalValues(from, rank));
    source_views.push_back(sources.back().view());
  }
  for (int rank : RanksOf(plan.target().mesh())) {
    targets.emplace_back(plan.target().LocalMeta(rank));
    target_views.push_back(targets.back().view());
  }
  const absl::Status status =
      ExecuteReference(plan, source_views, target_views);
  if (!status.ok()) return status.ToString();
  std::vector<std::vector<double>> values;
  for (const Piece& target : targets) values.push_back(target.Get());
  return FindFault(plan.target(), values);
}

}  // namespace tessera::testing
