#include "tessera/sweep/measure.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/planner.h"
#include "tessera/sweep/turns.h"
#include "tessera/sweep/works.h"

namespace tessera::internal {
namespace {

// Every rank is a thread.
constexpr int kMostRanks = 256;

using Memory = std::vector<std::byte>;

int64_t LargestPiece(const Layout& layout) {
  return layout.MostElements() * SizeOf(layout.dtype());
}

// --- Planning ---------------------------------------------------------------

absl::StatusOr<double> PlanningSeconds(const Redistribution& r,
                                       const SweepSpec& spec) {
  std::vector<double> seconds;
  for (int turn = 0; turn < spec.turns; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    TESSERA_RETURN_IF_ERROR(
        MakePlan(r.source, r.target, spec.topology).status());
    const auto end = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  return Median(seconds);
}

// The figures that need no rank.
void Describe(const Plan& plan, SweepRow& row) {
  row.plan = plan.ToString();
  for (const Step& step : plan.steps()) row.steps.push_back(step.Name());
  row.launches = plan.launches();
  row.bytes = BytesThatMustMove(plan.source(), plan.target());
  row.bytes_received = plan.bytes_received();
  row.predicted_seconds = static_cast<double>(plan.time_ps()) / 1e12;
}

// --- Measuring --------------------------------------------------------------

// Copies stand in the way of each other as those of a redistribution do.
Work MemcpyWork(int64_t bytes) {
  const auto from = std::make_shared<Memory>(bytes);
  const auto to = std::make_shared<Memory>(bytes);
  return [=] {
    // Through a pointer that the compiler does not know, so that it copies.
    void* (*volatile copy)(void*, const void*, size_t) = std::memcpy;
    copy(to->data(), from->data(), from->size());
    return absl::OkStatus();
  };
}

// The redistribution, the memcpy, and the collectives one by one.
absl::StatusOr<std::vector<Work>> WorksOf(
    const std::shared_ptr<const Plan>& plan, int64_t bytes, LocalRank& rank) {
  TESSERA_ASSIGN_OR_RETURN(Work redistribution, RedistributionWork(plan, rank));
  std::vector<Work> works = {std::move(redistribution), MemcpyWork(bytes)};
  if (!HasBareForm(*plan)) return works;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Work> bare,
                           BareCollectives(*plan, rank));
  works.insert(works.end(), bare.begin(), bare.end());
  return works;
}

absl::Status MeasureRanks(const Plan& plan, const SweepSpec& spec,
                          SweepRow& row) {
  const auto shared = std::make_shared<const Plan>(plan);
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MedianSeconds(
          plan.source().mesh().size(),
          {.count = spec.turns, .seconds = spec.turn_seconds},
          [&](LocalRank& rank) { return WorksOf(shared, row.bytes, rank); }));
  row.seconds = medians[0];
  row.memcpy_seconds = medians[1];
  if (medians.size() > 2) {
    row.bare_seconds = std::accumulate(medians.begin() + 2, medians.end(), 0.0);
  }
  return absl::OkStatus();
}

// --- What is skipped --------------------------------------------------------

// The most bytes that a rank needs at a time.
int64_t BytesPerRank(const Plan& plan, int64_t moved) {
  int64_t bytes = SaturatingAdd(plan.peak_bytes(), SaturatingMul(2, moved));
  if (!HasBareForm(plan)) return bytes;
  for (const Step& step : plan.steps()) {
    bytes = SaturatingAdd(bytes, LargestPiece(step.before));
    bytes = SaturatingAdd(bytes, LargestPiece(step.after));
  }
  return bytes;
}

// Why nothing on this mesh is to be planned or measured; empty if it is.
std::string WhyNotOn(const DeviceMesh& mesh) {
  if (mesh.size() <= kMostRanks && mesh.size() == mesh.end_rank()) return "";
  return absl::StrCat("sweep: want a mesh of ranks 0 to n-1, n at most ",
                      kMostRanks, ", found ", mesh.size(), " ranks up to ",
                      mesh.end_rank() - 1);
}

// Why this is not to be measured; empty if it is.
std::string WhyNot(const Plan& plan, const SweepSpec& spec) {
  const DeviceMesh& mesh = plan.source().mesh();
  const int64_t per_rank =
      BytesPerRank(plan, BytesThatMustMove(plan.source(), plan.target()));
  const auto bytes = CheckedMul(per_rank, mesh.size());
  if (bytes.has_value() && *bytes <= spec.max_bytes) return "";
  return absl::StrCat("sweep: want at most ", spec.max_bytes,
                      " bytes of memory, found ", mesh.size(), " ranks with ",
                      per_rank, " each");
}

SweepRow Skip(SweepRow row, absl::string_view why) {
  row.skipped = std::string(why);
  return row;
}

}  // namespace

int64_t BytesThatMustMove(const Layout& from, const Layout& to) {
  bool reduces = false;
  for (int axis = 0; axis < from.mesh().num_axes(); ++axis) {
    reduces |=
        from.placement(axis).is_partial() && !to.placement(axis).is_partial();
  }
  return std::max(LargestPiece(to), reduces ? LargestPiece(from) : 0);
}

absl::StatusOr<SweepRow> Measure(const SweepCase& sweep_case,
                                 const SweepSpec& spec) {
  SweepRow row = sweep_case.row;
  if (!sweep_case.redistribution.has_value()) return row;
  const Redistribution& r = *sweep_case.redistribution;
  std::string why_not = WhyNotOn(r.source.mesh());
  if (!why_not.empty()) return Skip(std::move(row), why_not);
  const auto plan = MakePlan(r.source, r.target, spec.topology);
  if (!plan.ok()) return Skip(std::move(row), plan.status().message());
  why_not = WhyNot(*plan, spec);
  if (!why_not.empty()) return Skip(std::move(row), why_not);

  Describe(*plan, row);
  TESSERA_ASSIGN_OR_RETURN(row.planning_seconds, PlanningSeconds(r, spec));
  TESSERA_RETURN_IF_ERROR(MeasureRanks(*plan, spec, row));
  return row;
}

}  // namespace tessera::internal
