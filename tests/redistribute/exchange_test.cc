#include "tessera/redistribute/exchange.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/run_plans.h"
#include "tests/redistribute/sampling.h"
#include "tests/redistribute/step_rules.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::internal::Box;
using ::tessera::internal::BoxMessage;
using ::tessera::internal::ExchangeAxes;
using ::tessera::internal::ExchangeOf;
using ::tessera::internal::MostReceived;
using ::tessera::internal::PartOf;
using ::tessera::internal::RankExchange;
using ::tessera::internal::ReceivedMost;
using ::tessera::testing::AllLayouts;
using ::tessera::testing::HeldElements;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::MakeStep;
using ::tessera::testing::RanksOf;
using ::tessera::testing::RunAndFindFault;
using ::tessera::testing::RunReferenceAndFindFault;
using ::tessera::testing::SeededRandom;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

std::vector<Layout> LayoutsOf(const std::string& meta,
                              const std::string& mesh) {
  return AllLayouts(TensorMeta::Parse(meta).value(),
                    DeviceMesh::Parse(mesh).value(), {});
}

Step StepBetween(const Layout& before, const Layout& after) {
  return MakeStep(StepKind::kExchange, ExchangeAxes(before, after), before,
                  after);
}

// The same with the axes named from the last to the first.
Step StepBackwards(const Layout& before, const Layout& after) {
  MeshCoords axes = ExchangeAxes(before, after);
  std::reverse(axes.begin(), axes.end());
  return MakeStep(StepKind::kExchange, axes, before, after);
}

// The row-major numbers of a box's elements, ascending.
std::vector<int64_t> ElementsOf(const Layout& layout, const Box& box) {
  std::vector<int64_t> elements = {0};
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    std::vector<int64_t> more;
    for (int64_t element : elements) {
      for (int64_t i = box[dim].begin; i < box[dim].end; ++i) {
        more.push_back(element * layout.shape().extent(dim) + i);
      }
    }
    elements = more;
  }
  return elements;
}

std::vector<int64_t> HeldBefore(const Layout& layout, int rank) {
  if (!layout.mesh().Contains(rank)) return {};
  return HeldElements(layout, rank);
}

bool Contains(const std::vector<int64_t>& sorted, int64_t element) {
  return std::binary_search(sorted.begin(), sorted.end(), element);
}

// All ranks' parts of one exchange, and what is wrong with them.
class Messages {
 public:
  explicit Messages(const Step& step)
      : step_(step), is_one_mesh_(step.before.mesh() == step.after.mesh()) {
    for (const Layout* layout : {&step.before, &step.after}) {
      for (int rank : RanksOf(layout->mesh())) {
        parts_.emplace(rank, ExchangeOf(step, rank));
      }
    }
  }

  std::string FindFault() const {
    for (const auto& [rank, parts] : parts_) {
      std::string fault = FaultInElements(rank, parts);
      if (fault.empty()) fault = FaultInSenders(rank, parts);
      if (fault.empty()) fault = FaultInPairs(rank, parts);
      if (fault.empty()) continue;
      return "rank " + std::to_string(rank) + ": " + fault;
    }
    return "";
  }

  const std::map<int, RankExchange>& parts() const { return parts_; }

  // The most elements that a rank sends.
  int64_t MostSent() const {
    int64_t most = 0;
    for (const auto& [rank, parts] : parts_) {
      int64_t sent = 0;
      for (const BoxMessage& message : parts.sends) {
        sent +=
            static_cast<int64_t>(ElementsOf(step_.before, message.box).size());
      }
      most = std::max(most, sent);
    }
    return most;
  }

 private:
  // A rank keeps what it had, and gets all else that it wants, once.
  std::string FaultInElements(int rank, const RankExchange& parts) const {
    const std::vector<int64_t> had = HeldBefore(step_.before, rank);
    const std::vector<int64_t> wanted = HeldBefore(step_.after, rank);
    std::vector<int64_t> found;
    for (const Box& box : parts.kept) {
      for (int64_t element : ElementsOf(step_.after, box)) {
        if (!Contains(had, element)) return "keeps what it did not have";
        found.push_back(element);
      }
    }
    for (const BoxMessage& message : parts.receives) {
      for (int64_t element : ElementsOf(step_.after, message.box)) {
        if (Contains(had, element)) return "receives what it had";
        found.push_back(element);
      }
    }
    std::sort(found.begin(), found.end());
    return found == wanted ? "" : "does not get exactly what it wants";
  }

  // What a rank gets of a cell comes from one holder, on one mesh along the
  // named axes.
  std::string FaultInSenders(int rank, const RankExchange& parts) const {
    std::map<std::vector<int64_t>, int> sender_of_cell;
    for (const BoxMessage& message : parts.receives) {
      const std::vector<int64_t> cell = HeldBefore(step_.before, message.peer);
      for (int64_t element : ElementsOf(step_.after, message.box)) {
        if (!Contains(cell, element)) return "receives from no holder";
      }
      if (sender_of_cell.emplace(cell, message.peer).first->second !=
          message.peer) {
        return "receives from two replicas";
      }
      if (is_one_mesh_ && !IsInGroup(rank, message.peer)) {
        return "receives along an axis that is not named";
      }
    }
    return "";
  }

  bool IsInGroup(int a, int b) const {
    const DeviceMesh& mesh = step_.before.mesh();
    MeshCoords at = mesh.CoordsOf(a).value();
    for (int axis : step_.axes) at[axis] = mesh.CoordsOf(b).value()[axis];
    return mesh.RankAt(at) == b;
  }

  // Both ends list the same messages in the same order.
  std::string FaultInPairs(int rank, const RankExchange& parts) const {
    for (const auto& [peer, theirs] : parts_) {
      std::vector<Box> sent;
      std::vector<Box> received;
      for (const BoxMessage& message : parts.sends) {
        if (message.peer == peer) sent.push_back(message.box);
      }
      for (const BoxMessage& message : theirs.receives) {
        if (message.peer == rank) received.push_back(message.box);
      }
      if (sent != received) {
        return "sends other messages to " + std::to_string(peer) +
               " than that receives";
      }
    }
    for (const BoxMessage& message : parts.sends) {
      if (!parts_.contains(message.peer)) return "sends to a stranger";
      if (message.peer == rank) return "sends to itself";
    }
    return "";
  }

  const Step& step_;
  const bool is_one_mesh_;
  std::map<int, RankExchange> parts_;
};

std::string TextOf(const Step& step) {
  return step.before.ToString() + " on " + step.before.mesh().ToString() +
         " -> " + step.after.ToString() + " on " +
         step.after.mesh().ToString() + ", " + step.Name();
}

// The messages, the figures, the proof and the values of the reference
// executor; appends the plan to `plans`, to be run.
void CheckStep(const Step& step, std::vector<Plan>& plans) {
  ASSERT_EQ(Messages(step).FindFault(), "") << TextOf(step);
  const ReceivedMost most = MostReceived(step.before, step.after);
  ASSERT_EQ(most.elements * SizeOf(step.before.dtype()), step.bytes_received)
      << TextOf(step);
  ASSERT_EQ(most.cells, step.messages) << TextOf(step);
  const Plan plan(step.before, step.after, {step});
  ASSERT_OK(Verify(plan));
  ASSERT_EQ(RunReferenceAndFindFault(plan), "") << TextOf(step);
  plans.push_back(plan);
}

int EndRank(const Layout& a, const Layout& b) {
  return std::max(a.mesh().end_rank(), b.mesh().end_rank());
}

// All pairs of a source and a target, the axes named in either order.
void CheckPairs(const std::vector<Layout>& sources,
                const std::vector<Layout>& targets) {
  SeededRandom random;
  const uint32_t one_in =
      kSampleOnly && sources.size() * targets.size() > 500 ? 29 : 1;
  std::vector<Plan> plans;
  for (const Layout& source : sources) {
    for (const Layout& target : targets) {
      if (random() % one_in != 0) continue;
      const Step step = random() % 2 == 0 ? StepBetween(source, target)
                                          : StepBackwards(source, target);
      CheckStep(step, plans);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(RunAndFindFault(EndRank(sources[0], targets[0]), plans), "");
}

// --- Axes -------------------------------------------------------------------

TEST(ExchangeAxesTest, AreThoseBehindTheCommonBeginningOfTheOrders) {
  const auto axes = [](const char* mesh, const char* before,
                       const char* after) {
    const Layout from = ParseLayout(mesh, std::string("f32[8,8] ") + before);
    return ExchangeAxes(from, from.With(after).value());
  };
  EXPECT_THAT(axes("x=2,y=2", "[S(0), S(1)]", "[S(0), S(1)]"), IsEmpty());
  EXPECT_THAT(axes("x=2,y=2", "[S(0), S(0)]", "[S(0), S(1)]"), ElementsAre(1));
  EXPECT_THAT(axes("x=2,y=2", "[S(0), R]", "[R, S(0)]"), ElementsAre(0, 1));
  EXPECT_THAT(axes("x=2,y=2", "[S(0), S(0)]", "[S(0)[1], S(0)[0]]"),
              ElementsAre(0, 1));
  EXPECT_THAT(axes("x=2,y=2,z=2", "[S(0), S(0), R]", "[S(0), R, S(0)]"),
              ElementsAre(1, 2));
  // Behind an axis that comes or goes all pieces lie elsewhere.
  EXPECT_THAT(axes("x=2,y=2,z=2", "[S(0), S(0), R]", "[R, S(0), R]"),
              ElementsAre(0, 1));
}

TEST(ExchangeAxesTest, LeavesOutAxesOfSizeOne) {
  const Layout from = ParseLayout("x=1,y=2", "f32[8] [S(0), S(0)]");
  EXPECT_THAT(ExchangeAxes(from, from.With("[R, S(0)]").value()), IsEmpty());
  EXPECT_THAT(ExchangeAxes(from, from.With("[S(0), R]").value()),
              ElementsAre(1));
}

TEST(ExchangeAxesTest, AreAllThatDivideWhereARaggedCutDiffers) {
  const auto axes = [](const char* before, const char* after) {
    const Layout from =
        ParseLayout("x=2,y=2,z=2,one=1", std::string("f32[8] ") + before);
    return ExchangeAxes(from, from.With(after).value());
  };
  const char* const cut = "[S(0), Ragged(0,1,4), R, R]";
  EXPECT_THAT(axes(cut, cut), IsEmpty());
  EXPECT_THAT(axes(cut, "[S(0), Ragged(0,1,4), R, S(0)]"), IsEmpty());
  EXPECT_THAT(axes(cut, "[S(0), Ragged(0,2,4), R, R]"), ElementsAre(0, 1));
  EXPECT_THAT(axes(cut, "[S(0), R, Ragged(0,1,4), R]"), ElementsAre(0, 1, 2));
  EXPECT_THAT(axes(cut, "[S(0), R, R, R]"), ElementsAre(0, 1));
  EXPECT_THAT(axes(cut, "[R, Ragged(0,1,8), R, R]"), ElementsAre(0, 1));
  // A dense piece has another shape than a ragged one.
  EXPECT_THAT(axes("[S(0), R, R, Ragged(0,4)]", "[S(0), R, R, R]"),
              ElementsAre(0));
}

TEST(ExchangeAxesTest, AreAllOfTheSourceBetweenTwoMeshes) {
  const Layout from = ParseLayout("x=2,y=1,z=3", "f32[8] [R, R, S(0)]");
  EXPECT_THAT(ExchangeAxes(from, ParseLayout("a=2", "f32[8] [R]")),
              ElementsAre(0, 2));
  EXPECT_THAT(ExchangeAxes(ParseLayout("a=1", "f32[8] [R]"), from), IsEmpty());
}

// --- Turns ------------------------------------------------------------------

// Peers of rank 0, 1, ... by what they receive or send.
std::vector<std::vector<int>> Senders(const Step& step) {
  std::vector<std::vector<int>> senders;
  for (int rank : RanksOf(step.after.mesh())) {
    senders.emplace_back();
    for (const BoxMessage& message : ExchangeOf(step, rank).receives) {
      senders.back().push_back(message.peer);
    }
  }
  return senders;
}

TEST(ExchangeTurnsTest, MoveAShardToAnotherAxisByOneMessageARank) {
  const Layout from = ParseLayout("x=4,y=4", "f32[8] [S(0), R]");
  const Messages messages(StepBetween(from, from.With("[R, S(0)]").value()));
  for (const auto& [rank, parts] : messages.parts()) {
    const int x = rank / 4;
    const int y = rank % 4;
    if (x == y) {
      EXPECT_THAT(parts.receives, IsEmpty());
    } else {
      ASSERT_EQ(parts.receives.size(), 1u);
      EXPECT_EQ(parts.receives[0].peer, y * 4 + (x + y) % 4);
    }
    EXPECT_LE(parts.sends.size(), 1u);
  }
}

// With y named first no turn may cross it.
TEST(ExchangeTurnsTest, KeepToTheLinksBehindTheOneThatIsCrossed) {
  const Layout from = ParseLayout("x=2,y=2", "f32[2] [S(0), R]");
  const Layout to = from.With("[R, S(0)]").value();
  EXPECT_THAT(
      Senders(StepBetween(from, to)),
      ElementsAre(IsEmpty(), ElementsAre(3), ElementsAre(1), IsEmpty()));
  EXPECT_THAT(
      Senders(StepBackwards(from, to)),
      ElementsAre(IsEmpty(), ElementsAre(3), ElementsAre(0), IsEmpty()));
}

TEST(ExchangeTurnsTest, AllReplicasSendInTurnBetweenTwoMeshes) {
  const Layout from = ParseLayout("x=2,y=3", "f32[2] [S(0), R]");
  const Layout to = ParseLayout("x=2,y=3@6", "f32[2] [R, S(0)]");
  EXPECT_THAT(Senders(StepBetween(from, to)),
              ElementsAre(ElementsAre(0), ElementsAre(4), IsEmpty(),
                          ElementsAre(0), ElementsAre(4), IsEmpty()));
  const Layout replicated = ParseLayout("x=8@6", "f32[2] [R]");
  EXPECT_THAT(Senders(StepBetween(from.With("[R, R]").value(), replicated)),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2),
                          ElementsAre(3), ElementsAre(4), ElementsAre(5),
                          ElementsAre(0), ElementsAre(1)));
}

TEST(ExchangeTurnsTest, ARankOfBothMeshesSendsItselfNothing) {
  const Layout from = ParseLayout("x=2,y=2", "f32[4] [R, S(0)]");
  const Layout to = ParseLayout("x=2,y=2@2", "f32[4] [R, S(0)]");
  EXPECT_THAT(
      Senders(StepBetween(from, to)),
      ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0), ElementsAre(3)));
}

// --- Pairs ------------------------------------------------------------------

class ExchangePairsTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(ExchangePairsTest, GiveTheReferenceValues) {
  const auto& [mesh, shape] = GetParam();
  const std::vector<Layout> layouts =
      LayoutsOf(std::string("f32") + shape, mesh);
  CheckPairs(layouts, layouts);
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangePairsTest,
    ::testing::Combine(::testing::Values("x=2,y=2", "x=2,y=3", "x=2,y=2,z=2",
                                         "x=1,y=3", "x=2:1,y=2:2@1"),
                       ::testing::Values("[4,6]", "[5,3]", "[1,7]", "[0,4]")));

// Apart, in part the same ranks, the same ones in another order, one within
// the other, and of axes with other names.
TEST(ExchangeMeshesTest, GiveTheReferenceValues) {
  constexpr const char* kMeshes[][2] = {
      {"x=2,y=2", "x=2,y=2@4"},   {"x=2,y=3", "x=2,y=2@3"},
      {"x=2,y=2", "x=2:1,y=2:2"}, {"x=2,y=2", "a=4"},
      {"x=2,y=2,z=2", "x=2@3"},   {"x=3@5", "x=2,y=2"},
      {"x=1", "x=3@1"},           {"x=2", "x=1"}};
  for (const auto& [before, after] : kMeshes) {
    for (const char* meta : {"bf16[5,3]", "f32[4,6]", "f32[0,4]", "i64[]"}) {
      SCOPED_TRACE(std::string(meta) + " " + before + " -> " + after);
      CheckPairs(LayoutsOf(meta, before), LayoutsOf(meta, after));
    }
  }
}

std::vector<Layout> ParseLayouts(const std::string& mesh,
                                 const std::string& meta,
                                 const std::vector<std::string>& placements) {
  std::vector<Layout> layouts;
  for (const std::string& text : placements) {
    layouts.push_back(ParseLayout(mesh, meta + " " + text));
  }
  return layouts;
}

void CheckAmongAnd(const std::vector<Layout>& ragged,
                   const std::vector<Layout>& others) {
  CheckPairs(ragged, ragged);
  CheckPairs(ragged, others);
  CheckPairs(others, ragged);
}

TEST(ExchangeRaggedTest, GiveTheReferenceValues) {
  CheckAmongAnd(ParseLayouts("x=2,y=2", "f32[4,3]",
                             {"[Ragged(0,5,12), R]", "[R, Ragged(0,12,12)]",
                              "[R, Ragged(-1+7)]", "[Ragged(-20+16), R]",
                              "[S(0), Ragged(0,1,6)]", "[S(1), Ragged(-3+6)]",
                              "[Ragged(0,0,8), S(1)]",
                              "[Ragged(0,2,2,7,12)[0], Ragged(0,2,2,7,12)[1]]",
                              "[Ragged(-2+4)[1], Ragged(-2+4)[0]]"}),
                LayoutsOf("f32[4,3]", "x=2,y=2"));
}

// Pieces begin and end inside rows and planes.
TEST(ExchangeRaggedTest, GiveTheReferenceValuesOfThreeDims) {
  CheckAmongAnd(
      ParseLayouts("x=2,y=3", "f32[3,2,4]",
                   {"[Ragged(0,13,24), R]", "[R, Ragged(0,3,11,24)]",
                    "[Ragged(-1+5)[0], Ragged(-1+5)[1]]",
                    "[Ragged(0,1,2,9,9,17,24)[1], Ragged(0,1,2,9,9,17,24)[0]]",
                    "[S(1), Ragged(0,5,6,12)]", "[S(2), Ragged(-2+5)]",
                    "[Ragged(0,3,8), S(0)]"}),
      LayoutsOf("f32[3,2,4]", "x=2,y=3"));
}

TEST(ExchangeRaggedTest, GiveTheReferenceValuesOfLittleOrNothing) {
  CheckAmongAnd(ParseLayouts("x=2,y=2", "f32[0,4]",
                             {"[Ragged(0,0,0), R]", "[S(1), Ragged(-3+6)]"}),
                LayoutsOf("f32[0,4]", "x=2,y=2"));
  CheckAmongAnd(ParseLayouts("x=2,y=2", "f32[]",
                             {"[Ragged(0,0,1), R]", "[R, Ragged(0,1,1)]"}),
                LayoutsOf("f32[]", "x=2,y=2"));
}

TEST(ExchangeRaggedTest, GiveTheReferenceValuesBetweenTwoMeshes) {
  const std::vector<Layout> here =
      ParseLayouts("x=2,y=2", "f32[4,3]",
                   {"[Ragged(0,5,12), R]", "[S(1), Ragged(-3+6)]",
                    "[Ragged(-2+4)[1], Ragged(-2+4)[0]]"});
  const std::vector<Layout> there = ParseLayouts(
      "x=3@2", "f32[4,3]", {"[Ragged(0,5,6,12)]", "[Ragged(-9+7)]"});
  CheckPairs(here, there);
  CheckPairs(there, here);
  CheckAmongAnd(here, LayoutsOf("f32[4,3]", "x=2,y=2@2"));
  CheckAmongAnd(there, LayoutsOf("f32[4,3]", "x=2,y=2"));
}

// --- Views ------------------------------------------------------------------

// The elements of a part lie where the rank's tensor has them.
TEST(ExchangeViewsTest, PartsOfStridedTensorsAreTheElementsOfTheirBoxes) {
  constexpr int64_t kStride = 3;
  const Layout ragged =
      ParseLayout("x=2,y=3", "i32[3,2,4] [Ragged(-1+5)[0], Ragged(-1+5)[1]]");
  for (const char* after : {"[R, R]", "[S(1), S(2)]", "[S(0), R]"}) {
    const Step step = StepBetween(ragged, ragged.With(after).value());
    for (int rank : RanksOf(ragged.mesh())) {
      const std::vector<int64_t> held = HeldElements(ragged, rank);
      std::vector<int32_t> memory(held.size() * kStride + 1);
      const TensorView local =
          TensorView::Strided(memory.data(), ragged.LocalMeta(rank), {kStride})
              .value();
      for (const BoxMessage& message : ExchangeOf(step, rank).sends) {
        const TensorView part =
            PartOf(local, ragged.RegionOf(rank), message.box);
        std::vector<int64_t> found;
        const auto strides = part.strides();
        for (int64_t i = 0; i < part.shape().extent(0); ++i) {
          for (int64_t j = 0; j < part.shape().extent(1); ++j) {
            for (int64_t k = 0; k < part.shape().extent(2); ++k) {
              const int64_t at = part.as<int32_t>() - memory.data() +
                                 i * strides[0] + j * strides[1] +
                                 k * strides[2];
              ASSERT_EQ(at % kStride, 0);
              found.push_back(held[at / kStride]);
            }
          }
        }
        EXPECT_EQ(found, ElementsOf(ragged, message.box));
      }
    }
  }
}

// --- Balance ----------------------------------------------------------------

// Where all replicas may take turns. More axes, of other sizes, have pairs that
// miss it by a factor of two.
TEST(ExchangeBalanceTest, NoRankSendsMoreThanTheMostThatOneReceives) {
  const struct {
    const char* mesh;
    const char* meta;  // of pieces that are even
  } kCases[] = {{"x=4,y=4", "f32[16,16]"},
                {"x=2,y=4", "f32[8,8]"},
                {"x=3,y=2", "f32[6,6]"},
                {"x=2,y=2,z=2", "f32[8,8]"}};
  for (const auto& [mesh, meta] : kCases) {
    const std::vector<Layout> layouts = LayoutsOf(meta, mesh);
    for (const Layout& before : layouts) {
      for (const Layout& after : layouts) {
        MeshCoords axes = ExchangeAxes(before, after);
        std::stable_partition(axes.begin(), axes.end(), [&](int axis) {
          return before.placement(axis).is_shard();
        });
        const Step step = MakeStep(StepKind::kExchange, axes, before, after);
        EXPECT_LE(Messages(step).MostSent() * SizeOf(before.dtype()),
                  step.bytes_received)
            << TextOf(step);
      }
    }
  }
}

// --- Size -------------------------------------------------------------------

// Work is in the number of own messages, not of ranks.
TEST(ExchangeTest, FindsTheMessagesOfOneRankAmongMany) {
  const Layout from = ParseLayout("a=128,b=128,c=128,d=512",
                                  "bf16[1048576,4096] [S(0), S(0), R, S(1)]");
  const Layout to = from.With("[S(0), R, S(0), S(1)]").value();
  const Step step = [&] {
    Step s;
    s.kind = StepKind::kExchange;
    s.axes = {1, 2};
    s.before = from;
    s.after = to;
    return s;
  }();
  ASSERT_THAT(ExchangeAxes(from, to), ElementsAre(1, 2));
  const int rank = from.mesh().RankAt({5, 6, 7, 8});
  const RankExchange parts = ExchangeOf(step, rank);
  ASSERT_EQ(parts.receives.size(), 1u);
  ASSERT_EQ(parts.sends.size(), 1u);
  // The cell is at b = 7, where the receiver has c; of its 128 replicas along c
  // it is the turn of that at c + b.
  EXPECT_EQ(parts.receives[0].peer, from.mesh().RankAt({5, 7, 6 + 7, 8}));
  EXPECT_EQ(parts.sends[0].peer, from.mesh().RankAt({5, 7 - 6, 6, 8}));
}

}  // namespace
}  // namespace tessera
