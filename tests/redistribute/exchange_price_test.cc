// What exchanges cost is what counting cell by cell finds.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/edges.h"
#include "tessera/redistribute/exchange.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/sampling.h"

namespace tessera {
namespace {

using internal::Box;
using internal::Cost;
using internal::CutLayout;
using internal::Edge;
using internal::ExchangeAxes;
using internal::LayoutGraph;
using internal::MostReceived;
using internal::PackedLayout;
using internal::ReceivedMost;
using ::tessera::testing::AllLayouts;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::RanksOf;
using ::tessera::testing::SeededRandom;

// All links alike; the first axis slow; the last one slow; the slow axis with
// the lower latency.
std::vector<Topology> Topologies(const DeviceMesh& mesh) {
  const Topology cpu = Topology::LocalCpu();
  const std::string first = mesh.axes().front().name;
  const std::string last = mesh.axes().back().name;
  const Link slow = {5'000'000, 3'000'000'000};
  return {cpu, cpu.WithLink(first, slow).value(),
          cpu.WithLink(last, slow).value(),
          cpu.WithLink(first, {10, 1'000'000'000})
              .value()
              .WithLink(last, {9'000'000, 40'000'000'000})
              .value()};
}

// A layout and what each rank holds of it.
struct Pieces {
  explicit Pieces(const Layout& whole) : layout(whole) {
    for (int rank : RanksOf(layout.mesh())) {
      coords.push_back(layout.mesh().CoordsOf(rank).value());
      boxes.push_back(layout.RegionOf(rank).box);
    }
  }

  Layout layout;
  std::vector<MeshCoords> coords;
  std::vector<Box> boxes;
};

int64_t CountShared(const Box& a, const Box& b) {
  int64_t elements = 1;
  for (size_t dim = 0; dim < a.size(); ++dim) {
    const int64_t begin = std::max(a[dim].begin, b[dim].begin);
    const int64_t end = std::min(a[dim].end, b[dim].end);
    if (begin >= end) return 0;
    elements *= end - begin;
  }
  return elements;
}

// Message by message: what a rank gets of each cell, from the holder that
// differs from it only along the axes that shard the tensor before.
class Count {
 public:
  Count(const Pieces& before, const Pieces& after,
        std::vector<Topology> topologies)
      : mesh_(before.layout.mesh()), topologies_(std::move(topologies)) {
    for (int axis : ExchangeAxes(before.layout, after.layout)) {
      if (before.layout.placement(axis).is_shard()) crossed_.push_back(axis);
    }
    costs_.resize(topologies_.size());
    for (size_t rank = 0; rank < after.boxes.size(); ++rank) {
      AddRank(before, after, rank);
    }
  }

  // One per topology.
  const std::vector<Cost>& costs() const { return costs_; }

 private:
  struct Message {
    std::vector<int> axes;  // along which its ends differ
    int64_t bytes;
  };

  static bool IsHolder(const Layout& before, const MeshCoords& receiver,
                       const MeshCoords& sender) {
    for (size_t axis = 0; axis < sender.size(); ++axis) {
      if (before.placement(static_cast<int>(axis)).is_replicate() &&
          receiver[axis] != sender[axis]) {
        return false;
      }
    }
    return true;
  }

  void AddRank(const Pieces& before, const Pieces& after, size_t rank) {
    std::vector<Message> messages;
    for (size_t peer = 0; peer < before.boxes.size(); ++peer) {
      const int64_t shared = CountShared(after.boxes[rank], before.boxes[peer]);
      if (shared == 0 || peer == rank ||
          !IsHolder(before.layout, before.coords[rank], before.coords[peer])) {
        continue;
      }
      Message message = {{}, shared * SizeOf(before.layout.dtype())};
      for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
        if (before.coords[rank][axis] != before.coords[peer][axis]) {
          message.axes.push_back(axis);
        }
      }
      messages.push_back(message);
    }
    for (size_t i = 0; i < topologies_.size(); ++i) {
      const Cost cost = CostOf(messages, topologies_[i]);
      costs_[i] = {std::max(costs_[i].bytes_received, cost.bytes_received),
                   std::max(costs_[i].messages, cost.messages),
                   std::max(costs_[i].time_ps, cost.time_ps)};
    }
  }

  static bool IsSlower(const Link& a, const Link& b) {
    return std::tuple(a.bytes_per_second, -a.latency_ps) <
           std::tuple(b.bytes_per_second, -b.latency_ps);
  }

  Cost CostOf(const std::vector<Message>& messages,
              const Topology& topology) const {
    // Bytes add up by link before they are rounded to a picosecond.
    std::vector<std::pair<Link, int64_t>> carried;
    Cost cost = {.time_ps = topology.launch_ps()};
    for (const Message& message : messages) {
      Link slowest = topology.LinkOf(mesh_, message.axes[0]);
      for (int axis : message.axes) {
        const Link link = topology.LinkOf(mesh_, axis);
        if (IsSlower(link, slowest)) slowest = link;
      }
      ++cost.messages;
      cost.bytes_received += message.bytes;
      cost.time_ps += LatencyOver(slowest, topology);
      const auto found = absl::c_find_if(
          carried, [&](const auto& entry) { return entry.first == slowest; });
      if (found == carried.end()) {
        carried.emplace_back(slowest, message.bytes);
      } else {
        found->second += message.bytes;
      }
    }
    for (const auto& [link, bytes] : carried) {
      const int64_t byte_ps = bytes * 1'000'000'000'000;
      cost.time_ps +=
          (byte_ps + link.bytes_per_second - 1) / link.bytes_per_second;
    }
    return cost;
  }

  // The latency of a link, or of a faster one that the step may cross.
  int64_t LatencyOver(const Link& slowest, const Topology& topology) const {
    int64_t latency = slowest.latency_ps;
    for (int axis : crossed_) {
      const Link link = topology.LinkOf(mesh_, axis);
      if (IsSlower(slowest, link)) {
        latency = std::max(latency, link.latency_ps);
      }
    }
    return latency;
  }

  const DeviceMesh& mesh_;
  const std::vector<Topology> topologies_;
  std::vector<int> crossed_;
  std::vector<Cost> costs_;
};

// What one exchange costs by one topology.
struct Priced {
  const Layout& before;
  const Layout& after;
  const Topology& topology;
  Cost counted;
  Cost price;
};

// Prices the pairs of one tensor's layouts, one in `one_in` of them, until a
// check fails.
void CheckPairs(const std::string& mesh_text, const std::string& meta,
                uint32_t one_in, absl::FunctionRef<void(const Priced&)> check) {
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  std::vector<Pieces> all;
  for (const Layout& layout :
       AllLayouts(TensorMeta::Parse(meta).value(), mesh, {})) {
    all.emplace_back(layout);
  }
  const std::vector<Topology> topologies = Topologies(mesh);
  std::vector<LayoutGraph> graphs;
  for (const Topology& topology : topologies) {
    graphs.push_back(
        LayoutGraph::Create(all[0].layout, all[0].layout, topology).value());
  }
  SeededRandom random;
  for (const Pieces& before : all) {
    for (const Pieces& after : all) {
      if (random() % one_in != 0) continue;
      SCOPED_TRACE(before.layout.ToString() + " -> " + after.layout.ToString() +
                   " on " + mesh_text);
      const std::vector<Cost> counted =
          Count(before, after, topologies).costs();
      for (size_t i = 0; i < topologies.size(); ++i) {
        SCOPED_TRACE(topologies[i].ToJson());
        const std::optional<Edge> edge = graphs[i].Exchange(
            graphs[i].Pack(before.layout), graphs[i].Pack(after.layout));
        const Cost nothing = {.time_ps = topologies[i].launch_ps()};
        check({before.layout, after.layout, topologies[i], counted[i],
               edge.has_value() ? edge->cost : nothing});
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

void ExpectReceived(const Priced& priced) {
  const ReceivedMost most = MostReceived(priced.before, priced.after);
  EXPECT_EQ(priced.price.bytes_received,
            most.elements * SizeOf(priced.before.dtype()));
  EXPECT_EQ(priced.price.messages, most.cells);
  EXPECT_EQ(priced.price.bytes_received, priced.counted.bytes_received);
  EXPECT_EQ(priced.price.messages, priced.counted.messages);
}

// What spares a search many prices: bounds, and collectives that cost as much.
void ExpectBounds(const Priced& priced) {
  const LayoutGraph graph =
      LayoutGraph::Create(priced.before, priced.after, priced.topology).value();
  const PackedLayout from = graph.Pack(priced.before);
  const PackedLayout to = graph.Pack(priced.after);
  if (!graph.Exchange(from, to).has_value()) return;
  const CutLayout before = graph.Cut(from);
  const CutLayout after = graph.Cut(to);
  const int64_t least = graph.LeastExchange(before, after);
  EXPECT_LE(least, priced.price.time_ps);
  std::vector<Edge> edges;
  graph.EdgesFrom(from, edges);
  bool has_collective = false;
  for (const Edge& edge : edges) {
    if (edge.kind == StepKind::kExchange || edge.after != to) continue;
    EXPECT_LE(least, edge.cost.time_ps) << StepKindName(edge.kind);
    has_collective = has_collective || edge.cost == priced.price;
  }
  EXPECT_TRUE(has_collective || !graph.HasSliceOrCollective(before, after));
}

class SmallMeshesTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(SmallMeshesTest, PricesAreExact) {
  const auto& [mesh, meta] = GetParam();
  CheckPairs(mesh, meta, kSampleOnly ? 20 : 1, [](const Priced& priced) {
    ExpectReceived(priced);
    EXPECT_EQ(priced.price.time_ps, priced.counted.time_ps);
    ExpectBounds(priced);
  });
}

INSTANTIATE_TEST_SUITE_P(
    ExchangePrices, SmallMeshesTest,
    ::testing::Combine(::testing::Values("x=2,y=2", "x=2,y=3", "x=4,y=2",
                                         "x=2,y=2,z=2"),
                       ::testing::Values("f32[8,8]", "f32[16,16]", "f32[5,3]",
                                         "f32[1,7]", "f32[0,4]", "f32[6,10]")));

class LargeMeshesTest : public ::testing::TestWithParam<const char*> {};

// With links of several kinds times are bounds.
TEST_P(LargeMeshesTest, EvenCutsAreCountedExactly) {
  CheckPairs(GetParam(), "f32[128,256]", kSampleOnly ? 200 : 20,
             [](const Priced& priced) {
               ExpectReceived(priced);
               if (priced.topology == Topology::LocalCpu()) {
                 EXPECT_EQ(priced.price.time_ps, priced.counted.time_ps);
               }
               EXPECT_GE(priced.price.time_ps, priced.counted.time_ps);
               ExpectBounds(priced);
             });
}

TEST_P(LargeMeshesTest, UnevenCutsAreBounded) {
  CheckPairs(GetParam(), "f32[100,33]", kSampleOnly ? 200 : 20,
             [](const Priced& priced) {
               const Cost& price = priced.price;
               EXPECT_GE(price.bytes_received, priced.counted.bytes_received);
               EXPECT_GE(price.messages, priced.counted.messages);
               EXPECT_GE(price.time_ps, priced.counted.time_ps);
               ExpectBounds(priced);
             });
}

INSTANTIATE_TEST_SUITE_P(ExchangePrices, LargeMeshesTest,
                         ::testing::Values("x=16,y=8", "x=4,y=4,z=8"));

}  // namespace
}  // namespace tessera
