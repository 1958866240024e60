#include "tests/redistribute/run_plans.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tessera/tensor/dtype.h"
#include "tessera/testing/reference_executor.h"
#include "tests/redistribute/reference.h"

namespace tessera::testing {
namespace {

// Bytes that no value of the reference is made of.
constexpr unsigned char kPoison = 0x7f;

// Host memory for one piece.
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

absl::Status RunRank(absl::Span<const Plan> plans, LocalRank& self,
                     Outcomes& outcomes) {
  std::vector<Piece> pieces;
  pieces.reserve(2 * plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    const Layout& from = plans[i].source();
    const Layout& to = plans[i].target();
    RankOutcome& outcome = outcomes[i][self.rank];
    Piece& source = pieces.emplace_back(from.LocalMeta(self.rank));
    Piece& target = pieces.emplace_back(to.LocalMeta(self.rank));
    if (from.mesh().Contains(self.rank)) {
      source.Set(LocalValues(from, self.rank));
    }
    self.device.ResetMemoryPeaks();
    self.comms.log().Clear();
    TESSERA_RETURN_IF_ERROR(Execute(plans[i], source.view(), target.view(),
                                    self.comms, self.stream));
    outcome.workspace_peak =
        self.device.memory().by_tag["workspace"].peak_bytes;
    outcome.collectives = self.comms.log().recent();
  }
  TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
  for (size_t i = 0; i < plans.size(); ++i) {
    outcomes[i][self.rank].target = pieces[2 * i + 1].Get();
  }
  return absl::OkStatus();
}

std::string FaultInValues(const Plan& plan,
                          absl::Span<const RankOutcome> ranks) {
  std::vector<std::vector<double>> pieces;
  for (const RankOutcome& rank : ranks) pieces.push_back(rank.target);
  return FindFault(plan.target(), pieces);
}

// Every rank issues the plan's collectives; what the step says is what the
// rank that receives most receives.
std::string FaultInTraffic(const Plan& plan,
                           absl::Span<const RankOutcome> ranks) {
  std::vector<int64_t> wanted;
  for (const Step& step : plan.steps()) {
    if (Communicates(step.kind)) wanted.push_back(step.bytes_received);
  }
  std::vector<int64_t> most(wanted.size(), 0);
  for (const RankOutcome& rank : ranks) {
    if (rank.collectives.size() != wanted.size()) {
      return absl::StrCat("a rank issued ", rank.collectives.size(),
                          " collectives, want ", wanted.size());
    }
    for (size_t i = 0; i < most.size(); ++i) {
      most[i] = std::max(most[i], rank.collectives[i].bytes_received);
    }
  }
  for (size_t i = 0; i < most.size(); ++i) {
    if (most[i] == wanted[i]) continue;
    return absl::StrCat("collective ", i, " received ", most[i],
                        " bytes, planned ", wanted[i]);
  }
  return "";
}

std::string FaultInWorkspace(const Plan& plan,
                             absl::Span<const RankOutcome> ranks) {
  int64_t most = 0;
  for (const RankOutcome& rank : ranks) {
    most = std::max(most, rank.workspace_peak);
  }
  if (most == plan.workspace_bytes()) return "";
  return absl::StrCat("workspace was ", most, " bytes, planned ",
                      plan.workspace_bytes());
}

// What is wrong with what came of `plan` on the ranks of the world.
std::string FaultIn(const Plan& plan, absl::Span<const RankOutcome> world) {
  const DeviceMesh& mesh = plan.source().mesh();
  std::vector<RankOutcome> ranks;
  for (int rank : RanksOf(mesh)) ranks.push_back(world[rank]);
  for (size_t rank = 0; rank < world.size(); ++rank) {
    if (mesh.Contains(static_cast<int>(rank))) continue;
    const RankOutcome& outside = world[rank];
    if (!outside.collectives.empty() || outside.workspace_peak != 0) {
      return absl::StrCat("rank ", rank, " outside the mesh takes part");
    }
  }
  std::string fault = FaultInValues(plan, ranks);
  if (fault.empty()) fault = FaultInTraffic(plan, ranks);
  if (fault.empty()) fault = FaultInWorkspace(plan, ranks);
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
      [&](LocalRank& self) { return RunRank(plans, self, outcomes); },
      options));
  return outcomes;
}

std::string RunAndFindFault(int num_ranks, absl::Span<const Plan> plans,
                            CpuStreams streams) {
  const absl::StatusOr<Outcomes> outcomes = RunPlans(num_ranks, plans, streams);
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

std::string RunReferenceAndFindFault(const Plan& plan) {
  const Layout& from = plan.source();
  std::vector<Piece> sources;
  std::vector<Piece> targets;
  std::vector<TensorView> source_views;
  std::vector<TensorView> target_views;
  for (int rank : RanksOf(from.mesh())) {
    sources.emplace_back(from.LocalMeta(rank));
    sources.back().Set(LocalValues(from, rank));
    targets.emplace_back(plan.target().LocalMeta(rank));
    // Moving a piece leaves its bytes where they are.
    source_views.push_back(sources.back().view());
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
