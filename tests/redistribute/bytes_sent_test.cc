#include "tessera/redistribute/bytes_sent.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tessera/redistribute/exchange.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/step_rules.h"

namespace tessera {
namespace {

using ::tessera::internal::BytesSent;
using ::tessera::internal::ExchangeAxes;
using ::tessera::testing::AllLayouts;
using ::tessera::testing::HeldElements;
using ::tessera::testing::LegalStep;
using ::tessera::testing::MakeStep;
using ::tessera::testing::RanksOf;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Step ExchangeBetween(const Layout& before, const Layout& after) {
  return MakeStep(StepKind::kExchange, ExchangeAxes(before, after), before,
                  after);
}

// True if the ranks have the same coordinates along all axes but the step's.
bool InOneGroup(const Step& step, int a, int b) {
  const DeviceMesh& mesh = step.before.mesh();
  const MeshCoords at_a = mesh.CoordsOf(a).value();
  const MeshCoords at_b = mesh.CoordsOf(b).value();
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const bool is_named = std::count(step.axes.begin(), step.axes.end(), axis);
    if (!is_named && at_a[axis] != at_b[axis]) return false;
  }
  return true;
}

// The most bytes of what other ranks of its group hold afterwards that a rank
// holds before.
int64_t CountSent(const Step& step) {
  int64_t most = 0;
  for (int rank : RanksOf(step.before.mesh())) {
    const std::vector<int64_t> has = HeldElements(step.before, rank);
    int64_t sent = 0;
    for (int other : RanksOf(step.before.mesh())) {
      if (other == rank || !InOneGroup(step, rank, other)) continue;
      std::vector<int64_t> goes;
      const std::vector<int64_t> wants = HeldElements(step.after, other);
      std::set_intersection(has.begin(), has.end(), wants.begin(), wants.end(),
                            std::back_inserter(goes));
      sent += static_cast<int64_t>(goes.size());
    }
    most = std::max(most, sent);
  }
  return most * SizeOf(step.before.dtype());
}

TEST(BytesSentTest, AreThoseThatCollectivesSend) {
  int collectives = 0;
  for (const char* mesh : {"x=4", "x=2,y=3"}) {
    for (const char* meta : {"f32[5,3]", "bf16[6,4]", "f64[1,7]"}) {
      const std::vector<Layout> layouts =
          AllLayouts(TensorMeta::Parse(meta).value(),
                     DeviceMesh::Parse(mesh).value(), {ReduceOp::kSum});
      for (const Layout& before : layouts) {
        for (const Layout& after : layouts) {
          const auto named = LegalStep(before, after);
          if (!named.has_value()) continue;
          const Step step = MakeStep(named->kind, named->axes, before, after);
          if (!Communicates(step.kind)) {
            EXPECT_EQ(BytesSent(step), 0);
          } else if (step.kind == StepKind::kAllReduce) {
            EXPECT_EQ(BytesSent(step), step.bytes_received);
          } else {
            EXPECT_EQ(BytesSent(step), CountSent(step))
                << step.Name() << " from " << before << " to " << after;
          }
          ++collectives;
        }
      }
    }
  }
  EXPECT_GT(collectives, 100);
}

TEST(BytesSentTest, MayBeMoreThanAnyRankReceives) {
  // Pieces of 2, 2, 1 and 0.
  const Step gather =
      MakeStep(StepKind::kAllGather, {0}, ParseLayout("x=4", "f32[5] [S(0)]"),
               ParseLayout("x=4", "f32[5] [R]"));
  EXPECT_EQ(gather.bytes_received, 4 * 5);
  EXPECT_EQ(BytesSent(gather), 4 * 3 * 2);
}

TEST(BytesSentTest, ReplicasShareWhatAnExchangeSends) {
  // Every rank sends and receives one message of a column's quarter.
  const Layout rows = ParseLayout("x=4,y=4", "f32[8] [S(0), R]");
  const Step turn = ExchangeBetween(rows, rows.With("[R, S(0)]").value());
  EXPECT_EQ(BytesSent(turn), 4 * 2);
  EXPECT_EQ(turn.bytes_received, 4 * 2);
  // Two replicas send to three ranks.
  const Step crossing = ExchangeBetween(ParseLayout("x=2", "f32[8] [R]"),
                                        ParseLayout("y=3@2", "f32[8] [R]"));
  EXPECT_EQ(crossing.bytes_received, 4 * 8);
  EXPECT_EQ(BytesSent(crossing), 4 * 8 * 2);
}

TEST(BytesSentTest, AreThoseReceivedWhereNobodyIsAsked) {
  Step step = ExchangeBetween(ParseLayout("x=2", "f32[8] [R]"),
                              ParseLayout("y=3@2", "f32[8] [R]"));
  step.before = ParseLayout("x=1025", "f32[8] [R]");
  step.bytes_received = 17;
  EXPECT_EQ(BytesSent(step), 17);
  // A step that is none.
  step.before = ParseLayout("x=2,y=2", "f32[8] [S(0), R]");
  step.after = step.before.With("[R, S(0)]").value();
  step.axes = {1};
  EXPECT_EQ(BytesSent(step), 17);
  step.after = step.before.With("[P, R]").value();
  EXPECT_EQ(BytesSent(step), 17);
}

}  // namespace
}  // namespace tessera
