// Plans executed on simulated ranks: where pieces are even, every step takes
// the time that the planner gave it.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/sim/sim_world.h"
#include "tessera/device/sim/sim_device.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::SeededRandom;

// Durations of the collectives of a plan as `rank` runs it, in order.
std::vector<int64_t> SimulatedTimes(const Plan& plan, const SimWorld& world,
                                    int rank) {
  SimDevice device;
  const auto stream = device.NewStream("s").value();
  const auto comm = world.Join(rank, *stream).value();
  CommSet comms(*comm);
  const TensorMeta source = plan.source().LocalMeta(rank);
  const TensorMeta target = plan.target().LocalMeta(rank);
  const Buffer from = device.Allocate(source.num_bytes(), "source").value();
  const Buffer to = device.Allocate(target.num_bytes(), "target").value();
  EXPECT_OK(Execute(plan, TensorView(from.data(), source),
                    TensorView(to.data(), target), comms, *stream));
  std::vector<int64_t> times;
  for (const TracedOperation& operation : device.trace().operations) {
    if (operation.communicator.empty()) continue;
    times.push_back(operation.end_ps - operation.begin_ps);
  }
  return times;
}

std::vector<int64_t> PlannedTimes(const Plan& plan) {
  std::vector<int64_t> times;
  for (const Step& step : plan.steps()) {
    if (Communicates(step.kind)) times.push_back(step.time_ps);
  }
  return times;
}

// The longest over the ranks, for which the planner's prices are.
std::vector<int64_t> LongestTimes(const Plan& plan, const SimWorld& world) {
  std::vector<int64_t> longest = SimulatedTimes(plan, world, 0);
  for (int rank = 1; rank < world.num_ranks(); ++rank) {
    const std::vector<int64_t> times = SimulatedTimes(plan, world, rank);
    EXPECT_EQ(times.size(), longest.size());
    for (size_t i = 0; i < times.size(); ++i) {
      longest[i] = std::max(longest[i], times[i]);
    }
  }
  return longest;
}

bool HasExchange(const Plan& plan) {
  return absl::c_any_of(plan.steps(), [](const Step& step) {
    return step.kind == StepKind::kExchange;
  });
}

// Plans for random pairs of layouts, those with an exchange only where wanted.
void CheckPrices(const std::string& mesh_text, const Topology& topology,
                 bool with_exchanges = true) {
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  const SimWorld world = SimWorld::Create(mesh, topology).value();
  const std::vector<Layout> layouts = AllLayouts(
      TensorMeta::Parse("f32[64,192]").value(), mesh, {ReduceOp::kSum});
  SeededRandom random;
  int64_t steps = 0;
  for (int i = 0; i < 150; ++i) {
    const Layout& source = layouts[random() % layouts.size()];
    const Layout& target = layouts[random() % layouts.size()];
    const Plan plan = MakePlan(source, target, topology).value();
    if (!with_exchanges && HasExchange(plan)) continue;
    SCOPED_TRACE(plan.ToString());
    const std::vector<int64_t> planned = PlannedTimes(plan);
    ASSERT_EQ(LongestTimes(plan, world), planned);
    steps += static_cast<int64_t>(planned.size());
  }
  EXPECT_GT(steps, 50);
}

TEST(SimPriceTest, StepsTakeWhatThePlannerSays) {
  CheckPrices("x=8", *Topology::Preset("h100-ib"));
  CheckPrices("x=2,y=8", *Topology::Preset("h100-ib"));
  CheckPrices("x=4,y=2", *Topology::Preset("a100-hdr"));
}

TEST(SimPriceTest, AlsoWhereFastLinksHaveTheHigherLatency) {
  const Topology topology =
      Topology::Create("odd", {.latency_ps = 10, .bytes_per_second = 1'000'000},
                       1000, 1'000'000)
          ->WithLink("y", {.latency_ps = 7000, .bytes_per_second = 3'000'000})
          .value();
  // Which replica sends in an exchange goes by bandwidth alone.
  CheckPrices("x=2,y=4", topology, /*with_exchanges=*/false);
}

}  // namespace
}  // namespace tessera
