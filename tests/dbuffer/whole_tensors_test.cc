#include "tessera/dbuffer/whole_tensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/dbuffer/dbuffer.h"
#include "tessera/redistribute/execute_many.h"
#include "tessera/redistribute/plan_many.h"
#include "tessera/testing/shards.h"
#include "tests/dbuffer/hsdp_buffers.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::Fill;
using ::tessera::testing::GroupPtr;
using ::tessera::testing::Parse;
using ::tessera::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The least maximum that any assignment has: all are tried.
int64_t LeastMaximum(absl::Span<const int64_t> sizes,
                     std::vector<int64_t>& loads) {
  if (sizes.empty()) return *std::max_element(loads.begin(), loads.end());
  int64_t least = INT64_MAX;
  for (int64_t& load : loads) {
    load += sizes[0];
    least = std::min(least, LeastMaximum(sizes.subspan(1), loads));
    load -= sizes[0];
  }
  return least;
}

TEST(BalancedOwnersTest, GivesTheLargestToWhoeverHasLeast) {
  EXPECT_THAT(BalancedOwners({3, 9, 4, 5}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(BalancedOwners({5, 5, 5}, 4), ElementsAre(0, 1, 2));
  EXPECT_THAT(BalancedOwners({1, 2, 3}, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(BalancedOwners({}, 3), IsEmpty());
}

TEST(BalancedOwnersTest, IsWithinGrahamsBound) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int64_t owners = pick(1, 4);
    std::vector<int64_t> sizes(pick(1, 8));
    for (int64_t& size : sizes) size = pick(0, 30);
    std::vector<int64_t> loads(owners, 0);
    const std::vector<int64_t> owner_of = BalancedOwners(sizes, owners);
    for (size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_GE(owner_of[i], 0);
      ASSERT_LT(owner_of[i], owners);
      loads[owner_of[i]] += sizes[i];
    }
    const int64_t maximum = *std::max_element(loads.begin(), loads.end());
    std::vector<int64_t> none(owners, 0);
    EXPECT_LE(3 * owners * maximum,
              (4 * owners - 1) * LeastMaximum(sizes, none));
  }
}

// Tensor parallelism beside two data-parallel axes.
class WholeTensorsTest : public ::testing::Test {
 protected:
  WholeTensorsTest() {
    const std::pair<const char*, const char*> tensors[] = {
        {"even", "f32[6,11] [R, R, S(0)]"},
        {"uneven", "f32[7,9] [R, R, S(0)]"},
        {"columns", "f32[5,7] [R, R, S(1)]"},
        {"norm", "f32[10] [R, R, R]"},
        {"scalar", "f32[] [R, R, R]"},
        {"short", "f32[1,4] [R, R, S(0)]"}};
    std::vector<BufferGroup::Tensor> list;
    for (const auto& [name, layout] : tensors) {
      list.push_back({name, Layout::Parse(layout, mesh_).value()});
    }
    group_ = BufferGroup::Create(mesh_, std::move(list),
                                 {.axes = {0, 1}, .num_flat_axes = 2})
                 .value();
  }

  // Of the group's tensors in a buffer with these placements.
  std::vector<Layout> CutLayouts(const BufferPlacements& placements) const {
    std::vector<Layout> layouts;
    for (int i = 0; i < group_->num_tensors(); ++i) {
      layouts.push_back(
          group_->TensorLayout(i, DType::kF32, placements).value());
    }
    return layouts;
  }

  const DeviceMesh mesh_ =
      DeviceMesh::Parse("dp_outer=2,dp_inner=2,tp=2").value();
  GroupPtr group_;
};

TEST_F(WholeTensorsTest, OneCoordinateHoldsEachTensorWhole) {
  for (absl::string_view placements : {"[R, Flat]", "[Flat, Flat]"}) {
    SCOPED_TRACE(placements);
    ASSERT_OK_AND_ASSIGN(const std::vector<Layout> layouts,
                         WholeTensorLayouts(CutLayouts(Parse(placements))));
    ASSERT_EQ(layouts.size(), 6);
    const bool both = placements == "[Flat, Flat]";
    std::vector<int64_t> held(mesh_.size(), 0);
    for (int i = 0; i < group_->num_tensors(); ++i) {
      const int64_t all = group_->tensor(i).layout.meta().num_elements();
      int owners = 0;
      for (int rank = 0; rank < mesh_.size(); ++rank) {
        const int64_t elements = layouts[i].RegionOf(rank).num_elements();
        held[rank] += elements;
        if (elements == 0) continue;
        EXPECT_EQ(elements, all);
        ++owners;
      }
      // One and its replicas along the other axes.
      EXPECT_EQ(owners, both ? 2 : 4) << i;
    }
    // 66 + 63 + 35 + 10 + 4 + 1 elements.
    EXPECT_EQ(*std::max_element(held.begin(), held.end()), both ? 66 : 98);
  }
}

TEST_F(WholeTensorsTest, TensorsThatNoAxisCutsAreWholeEverywhere) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Layout> layouts,
                       WholeTensorLayouts(CutLayouts(Parse("[R, R]"))));
  for (const Layout& layout : layouts) {
    EXPECT_EQ(layout.PlacementsToString(), "[R, R, R]");
  }
}

// Those that one axis cuts have nothing to do with those that two cut.
TEST_F(WholeTensorsTest, TensorsThatTheSameAxesCutAreBalanced) {
  std::vector<Layout> cut = CutLayouts(Parse("[R, Flat]"));
  const std::vector<Layout> one = *WholeTensorLayouts(cut);
  const std::vector<Layout> others = CutLayouts(Parse("[Flat, Flat]"));
  cut.insert(cut.begin(), others.begin(), others.end());
  ASSERT_OK_AND_ASSIGN(const std::vector<Layout> whole,
                       WholeTensorLayouts(cut));
  EXPECT_EQ(std::vector<Layout>(whole.begin() + 6, whole.end()), one);
  EXPECT_EQ(std::vector<Layout>(whole.begin(), whole.begin() + 6),
            *WholeTensorLayouts(others));
}

TEST_F(WholeTensorsTest, NobodyHoldsATensorWithoutElements) {
  ASSERT_OK_AND_ASSIGN(
      const Layout cut,
      Layout::Parse("f32[0,4] [Ragged(0+1)[1], Ragged(0+1), S(0)]", mesh_));
  ASSERT_OK_AND_ASSIGN(const std::vector<Layout> whole,
                       WholeTensorLayouts({cut}));
  EXPECT_EQ(whole[0].MostElements(), 0);
}

// Of element `number` of tensor i.
double Value(int i, int64_t number) {
  return static_cast<double>(1000 * (i + 1) + number);
}

TEST_F(WholeTensorsTest, GoesToTheOwnersAndBackInAFewLaunches) {
  EXPECT_OK(RunLocalRanks(8, [&](LocalRank& rank) -> absl::Status {
    const BufferPlacements flat = Parse("[Flat, Flat]");
    TESSERA_ASSIGN_OR_RETURN(
        DBuffer buffer, DBuffer::Allocate(group_, flat, DType::kF32, rank.rank,
                                          rank.device, "weights", rank.stream));
    const std::vector<Layout> cut = CutLayouts(flat);
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Layout> whole,
                             WholeTensorLayouts(cut));
    std::vector<Redistribution> there;
    std::vector<Redistribution> back;
    std::vector<TensorView> pieces;
    std::vector<ShardedTensor> owned;
    for (int i = 0; i < group_->num_tensors(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(const ShardedTensor piece,
                               buffer.Tensor(i).Sharded());
      TESSERA_RETURN_IF_ERROR(
          Fill(cut[i], rank.rank, piece.local(),
               [&](int64_t number) { return Value(i, number); }));
      there.push_back({cut[i], whole[i]});
      back.push_back({whole[i], cut[i]});
      pieces.push_back(piece.local());
      TESSERA_ASSIGN_OR_RETURN(
          ShardedTensor tensor,
          ShardedTensor::Allocate(whole[i], rank.rank, rank.device));
      owned.push_back(std::move(tensor));
    }
    std::vector<TensorView> whole_views;
    for (const ShardedTensor& t : owned) whole_views.push_back(t.local());
    TESSERA_ASSIGN_OR_RETURN(const ManyPlan to_owners,
                             PlanMany(there, Topology::LocalCpu()));
    TESSERA_ASSIGN_OR_RETURN(const ManyPlan to_buffer,
                             PlanMany(back, Topology::LocalCpu()));
    // Six tensors: one for each set of axes that they cross.
    EXPECT_LE(to_owners.launches(), 3);
    EXPECT_LE(to_buffer.launches(), 2);
    TESSERA_RETURN_IF_ERROR(
        ExecuteMany(to_owners, pieces, whole_views, rank.comms, rank.stream));
    // An owner works on the whole matrix: reverses it.
    for (int i = 0; i < group_->num_tensors(); ++i) {
      float* const data = whole_views[i].as<float>();
      const int64_t elements = whole_views[i].num_elements();
      for (int64_t k = 0; k < elements; ++k) EXPECT_EQ(data[k], Value(i, k));
      std::reverse(data, data + elements);
    }
    std::memset(buffer.local().data(), 0xff, buffer.local().num_bytes());
    TESSERA_RETURN_IF_ERROR(
        ExecuteMany(to_buffer, whole_views, pieces, rank.comms, rank.stream));
    for (int i = 0; i < group_->num_tensors(); ++i) {
      const int64_t last = cut[i].meta().num_elements() - 1;
      std::vector<float> wanted(pieces[i].num_elements());
      TESSERA_RETURN_IF_ERROR(
          Fill(cut[i], rank.rank,
               TensorView(wanted.data(), cut[i].LocalMeta(rank.rank)),
               [&](int64_t number) { return Value(i, last - number); }));
      for (size_t k = 0; k < wanted.size(); ++k) {
        EXPECT_EQ(pieces[i].as<float>()[k], wanted[k]) << i;
      }
    }
    return absl::OkStatus();
  }));
}

// Through the planner to an ordinary Shard, and back bit by bit.
TEST_F(WholeTensorsTest, ViewsBecomeOrdinaryShardsAndBack) {
  EXPECT_OK(RunLocalRanks(8, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        DBuffer buffer,
        DBuffer::Allocate(group_, Parse("[R, Flat]"), DType::kF32, rank.rank,
                          rank.device, "weights", rank.stream));
    for (int i = 0; i < 3; ++i) {
      TESSERA_ASSIGN_OR_RETURN(const ShardedTensor piece,
                               buffer.Tensor(i).Sharded());
      TESSERA_RETURN_IF_ERROR(
          Fill(piece.layout(), rank.rank, piece.local(),
               [&](int64_t number) { return Value(i, number); }));
      Placements placements(piece.layout().placements().begin(),
                            piece.layout().placements().end());
      placements[1] = Placement::Shard(1 - (i == 2 ? 1 : 0));
      TESSERA_ASSIGN_OR_RETURN(const Layout ordinary,
                               piece.layout().With(placements));
      TESSERA_ASSIGN_OR_RETURN(
          const ShardedTensor shard,
          Redistribute(piece, ordinary, Topology::LocalCpu(), rank.comms,
                       rank.stream));
      const Region region = ordinary.RegionOf(rank.rank);
      EXPECT_FALSE(region.flat.has_value());
      EXPECT_EQ(shard.local().shape(), region.LocalShape());
      TESSERA_ASSIGN_OR_RETURN(
          const ShardedTensor again,
          Redistribute(shard, piece.layout(), Topology::LocalCpu(), rank.comms,
                       rank.stream));
      const auto bytes = [](const TensorView& view) {
        return absl::string_view(view.as<char>(), view.num_bytes());
      };
      EXPECT_EQ(bytes(again.local()), bytes(piece.local())) << i;
    }
    return absl::OkStatus();
  }));
}

// Together they have more elements than int64 counts.
TEST_F(WholeTensorsTest, MayBeHugeWhereNothingIsCut) {
  const Layout huge = *Layout::Parse("bf16[4611686018427387903] [R]",
                                     *DeviceMesh::Parse("a=1"));
  EXPECT_OK(WholeTensorLayouts(std::vector<Layout>(3, huge)).status());
}

TEST_F(WholeTensorsTest, RejectsWhatCannotBeOwned) {
  EXPECT_THAT(WholeTensorLayouts(CutLayouts(Parse("[P, Flat]"))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("found f32[6,11] [P(sum), Ragged(")));
}

}  // namespace
}  // namespace tessera
