#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/dbuffer/dbuffer.h"
#include "tests/dbuffer/hsdp_buffers.h"
#include "tests/status_matchers.h"
#include "tests/watched_stream.h"

namespace tessera {
namespace {

using ::tessera::testing::Allocate;
using ::tessera::testing::FillTensors;
using ::tessera::testing::Floats;
using ::tessera::testing::GroupPtr;
using ::tessera::testing::HsdpGroup;
using ::tessera::testing::Parse;
using ::tessera::testing::StatusIs;
using ::tessera::testing::WatchedStream;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// --- Conversions ------------------------------------------------------------

TEST(DBufferConvertTest, RejectsWrongUse) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(DBuffer buffer,
                             Allocate(group, "[P(avg), Flat]", rank));
    const auto convert = [&](absl::string_view target) {
      return buffer.ConvertTo(Parse(target), rank.comms, rank.stream);
    };
    EXPECT_THAT(convert("[Flat, R]"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("axis 'dp_outer' is Flat")));
    EXPECT_THAT(convert("[R, R]"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("wants [0,256)"),
                               HasSubstr("found memory for"))));
    EXPECT_EQ(BufferPlacementsToString(buffer.placements()), "[P(avg), Flat]");

    TESSERA_ASSIGN_OR_RETURN(
        DBuffer other,
        DBuffer::Allocate(group, Parse("[R, R]"), DType::kF32, 3 - rank.rank,
                          rank.device, "buffer", rank.stream));
    EXPECT_THAT(other.ConvertTo(Parse("[R, Flat]"), rank.comms, rank.stream),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("communicators of rank ",
                                                3 - rank.rank))));
    return absl::OkStatus();
  }));
}

TEST(DBufferCopyTest, RejectsWrongUse) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const DBuffer partial,
                             Allocate(group, "[P, Flat]", rank));
    const auto copy_to = [&](absl::StatusOr<DBuffer> target) {
      return partial.CopyTo(*target, rank.comms, rank.stream);
    };
    EXPECT_THAT(
        copy_to(Allocate(group, "[P, Flat]", rank, DType::kF64)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("target in f32"), HasSubstr("found f64"))));
    EXPECT_THAT(copy_to(Allocate(HsdpGroup(), "[P, Flat]", rank)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("another group's")));
    return absl::OkStatus();
  }));
}

TEST(DBufferCopyTest, AnErrorLeavesTheTargetWhatItWas) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const DBuffer source,
                             Allocate(group, "[P, P]", rank));
    TESSERA_ASSIGN_OR_RETURN(DBuffer target,
                             Allocate(group, "[Flat, Flat]", rank));
    const Interval range = target.range();
    TESSERA_ASSIGN_OR_RETURN(Communicator* const inner,
                             rank.comms.Get(group->mesh(), {1}, rank.stream));
    inner->Abort(absl::AbortedError("on purpose"));
    EXPECT_THAT(source.CopyTo(target, rank.comms, rank.stream),
                StatusIs(absl::StatusCode::kAborted));
    EXPECT_EQ(BufferPlacementsToString(target.placements()), "[Flat, Flat]");
    EXPECT_EQ(target.range(), range);
    EXPECT_EQ(target.local().num_elements(), range.size());
    return absl::OkStatus();
  }));
}

using Calls = std::vector<std::pair<std::string, CollectiveKind>>;

// The collectives that rank 0 issues from one to another.
Calls CallsOf(const GroupPtr& group, absl::string_view source,
              absl::string_view target) {
  Calls calls;
  EXPECT_OK(
      RunLocalRanks(group->mesh().size(), [&](LocalRank& rank) -> absl::Status {
        // Grows back into what it was made for.
        TESSERA_ASSIGN_OR_RETURN(DBuffer buffer,
                                 Allocate(group, "[R, R]", rank));
        TESSERA_RETURN_IF_ERROR(
            buffer.ConvertTo(Parse(source), rank.comms, rank.stream));
        rank.comms.log().Clear();
        TESSERA_RETURN_IF_ERROR(
            buffer.ConvertTo(Parse(target), rank.comms, rank.stream));
        if (rank.rank != 0) return absl::OkStatus();
        for (const CollectiveRecord& record : rank.comms.log().recent()) {
          calls.emplace_back(record.communicator, record.kind);
        }
        return absl::OkStatus();
      }));
  return calls;
}

TEST(DBufferConvertTest, IssuesOneCollectivePerAxisInTheDocumentedOrder) {
  constexpr CollectiveKind kReduceScatter = CollectiveKind::kReduceScatter;
  constexpr CollectiveKind kAllReduce = CollectiveKind::kAllReduce;
  constexpr CollectiveKind kAllGather = CollectiveKind::kAllGather;
  const GroupPtr group = HsdpGroup();
  EXPECT_THAT(CallsOf(group, "[P, P]", "[P, Flat]"),
              ElementsAre(Pair("dp_inner", kReduceScatter)));
  EXPECT_THAT(CallsOf(group, "[P, Flat]", "[R, Flat]"),
              ElementsAre(Pair("dp_outer", kAllReduce)));
  EXPECT_THAT(CallsOf(group, "[P, Flat]", "[Flat, Flat]"),
              ElementsAre(Pair("dp_outer", kReduceScatter)));
  EXPECT_THAT(CallsOf(group, "[P, P]", "[Flat, Flat]"),
              ElementsAre(Pair("dp_inner", kReduceScatter),
                          Pair("dp_outer", kReduceScatter)));
  EXPECT_THAT(
      CallsOf(group, "[P, P]", "[R, R]"),
      ElementsAre(Pair("dp_inner", kAllReduce), Pair("dp_outer", kAllReduce)));
  EXPECT_THAT(CallsOf(group, "[P, P]", "[R, Flat]"),
              ElementsAre(Pair("dp_inner", kReduceScatter),
                          Pair("dp_outer", kAllReduce)));
  EXPECT_THAT(
      CallsOf(group, "[Flat, Flat]", "[R, R]"),
      ElementsAre(Pair("dp_outer", kAllGather), Pair("dp_inner", kAllGather)));
  EXPECT_THAT(
      CallsOf(group, "[P, Flat]", "[R, R]"),
      ElementsAre(Pair("dp_outer", kAllReduce), Pair("dp_inner", kAllGather)));
  EXPECT_THAT(CallsOf(group, "[R, R]", "[Flat, Flat]"), ElementsAre());
  EXPECT_THAT(CallsOf(group, "[R, R]", "[P, P]"), ElementsAre());
  EXPECT_THAT(CallsOf(group, "[Flat, Flat]", "[P, P]"), ElementsAre());
  EXPECT_THAT(CallsOf(group, "[R, Flat]", "[P, Flat]"), ElementsAre());

  const GroupPtr outer_first =
      HsdpGroup({.axes = {0, 1}, .cut_order = {0, 1}, .num_flat_axes = 2});
  EXPECT_THAT(CallsOf(outer_first, "[P, P]", "[Flat, R]"),
              ElementsAre(Pair("dp_outer", kReduceScatter),
                          Pair("dp_inner", kAllReduce)));
}

// The sum of 1 and 1e8 is 1e8 in f32, so that the order shows.
TEST(DBufferConvertTest, ReducesInCutOrder) {
  for (bool outer_first : {false, true}) {
    const GroupPtr group =
        HsdpGroup({.axes = {0, 1},
                   .cut_order = outer_first ? std::vector<int>{0, 1}
                                            : std::vector<int>{1, 0},
                   .num_flat_axes = 2});
    for (absl::string_view target : {"[R, R]", "[Flat, Flat]"}) {
      EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
        constexpr float kValues[] = {1, 1e8, 0, -1e8};  // [outer][inner]
        TESSERA_ASSIGN_OR_RETURN(DBuffer buffer,
                                 Allocate(group, "[P, P]", rank));
        for (float& x : Floats(buffer.local())) x = kValues[rank.rank];
        TESSERA_RETURN_IF_ERROR(
            buffer.ConvertTo(Parse(target), rank.comms, rank.stream));
        EXPECT_THAT(Floats(buffer.local()), Each(outer_first ? 1.0f : 0.0f));
        return absl::OkStatus();
      }));
    }
  }
}

// Every bit of a value survives being made a sum: -0.0, too.
TEST(DBufferConvertTest, ReentryKeepsEveryBit) {
  const GroupPtr group = HsdpGroup();
  for (absl::string_view source : {"[R, Flat]", "[Flat, Flat]", "[R, R]"}) {
    SCOPED_TRACE(source);
    EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(DBuffer buffer, Allocate(group, "[R, R]", rank));
      const auto convert = [&](absl::string_view target) {
        return buffer.ConvertTo(Parse(target), rank.comms, rank.stream);
      };
      TESSERA_RETURN_IF_ERROR(convert(source));
      constexpr float kBits[] = {-0.0f, 0.0f, 1.5f, -3e-41f, 7e30f};
      const absl::Span<float> held = Floats(buffer.local());
      for (size_t i = 0; i < held.size(); ++i) held[i] = kBits[i % 5];
      const std::vector<float> before(held.begin(), held.end());
      TESSERA_RETURN_IF_ERROR(convert("[P, P]"));
      TESSERA_RETURN_IF_ERROR(convert(source));
      EXPECT_EQ(std::memcmp(Floats(buffer.local()).data(), before.data(),
                            before.size() * sizeof(float)),
                0);
      return absl::OkStatus();
    }));
  }
}

TEST(DBufferConvertTest, IdentitiesAreNegativeZeros) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(DBuffer buffer, Allocate(group, "[R, R]", rank));
    FillTensors(buffer, 1);
    TESSERA_RETURN_IF_ERROR(
        buffer.ConvertTo(Parse("[P, R]"), rank.comms, rank.stream));
    const bool is_first = rank.rank < 2;
    EXPECT_EQ(Floats(buffer.local())[90], is_first ? 91 : 0);
    EXPECT_EQ(std::signbit(Floats(buffer.local())[90]), !is_first);
    return absl::OkStatus();
  }));
}

// --- Nothing is packed ------------------------------------------------------

// Collectives read and write the flat memory: no byte of it is copied to or
// from anywhere else on the rank.
TEST(DBufferConvertTest, LaunchesNothingButItsCollectives) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    WatchedStream stream(rank.stream);
    CommSet comms(rank.comms.world());
    TESSERA_ASSIGN_OR_RETURN(DBuffer buffer, Allocate(group, "[P, P]", rank));
    const auto begin = reinterpret_cast<uintptr_t>(buffer.local().data());
    const uintptr_t end = begin + buffer.local().num_bytes();
    const int64_t allocations = rank.device.memory().total.allocations;
    for (absl::string_view target :
         {"[P, Flat]", "[R, Flat]", "[Flat, Flat]", "[R, R]"}) {
      TESSERA_RETURN_IF_ERROR(buffer.ConvertTo(Parse(target), comms, stream));
    }
    EXPECT_THAT(stream.launches, ElementsAre("reduce_scatter", "all_reduce",
                                             "all_gather", "all_gather"));
    EXPECT_EQ(stream.copied_bytes, 0);
    EXPECT_EQ(stream.touched.size(), 8);
    for (const MemoryRange& range : stream.touched) {
      const auto at = reinterpret_cast<uintptr_t>(range.begin);
      EXPECT_TRUE(begin <= at && at + range.bytes <= end);
    }
    EXPECT_EQ(rank.device.memory().total.allocations, allocations);
    return absl::OkStatus();
  }));
}

TEST(DBufferCopyTest, SendsStraightIntoTheTarget) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    WatchedStream stream(rank.stream);
    CommSet comms(rank.comms.world());
    const auto launches_of =
        [&](absl::string_view from,
            absl::string_view to) -> absl::StatusOr<std::vector<std::string>> {
      TESSERA_ASSIGN_OR_RETURN(const DBuffer source,
                               Allocate(group, from, rank));
      FillTensors(source, 1);
      TESSERA_ASSIGN_OR_RETURN(DBuffer target, Allocate(group, to, rank));
      stream.launches.clear();
      TESSERA_RETURN_IF_ERROR(source.CopyTo(target, comms, stream));
      EXPECT_EQ(BufferPlacementsToString(source.placements()), from);
      EXPECT_EQ(BufferPlacementsToString(target.placements()), to);
      return stream.launches;
    };
    EXPECT_THAT(*launches_of("[Flat, Flat]", "[R, R]"),
                ElementsAre("all_gather", "all_gather"));
    EXPECT_THAT(*launches_of("[R, R]", "[Flat, Flat]"), ElementsAre("copy"));
    EXPECT_THAT(*launches_of("[P(sum), Flat]", "[Flat, Flat]"),
                ElementsAre("reduce_scatter"));
    EXPECT_THAT(*launches_of("[P(sum), R]", "[R, Flat]"),
                ElementsAre("all_reduce"));
    // Between the cuts there is twice what the target has room for.
    const int64_t before = rank.device.memory().total.current_bytes;
    EXPECT_THAT(*launches_of("[P(sum), P(sum)]", "[Flat, Flat]"),
                ElementsAre("reduce_scatter", "reduce_scatter", "free"));
    const MemoryUsage workspace = rank.device.memory().by_tag["workspace"];
    EXPECT_EQ(workspace.peak_bytes, 128 * 4);
    EXPECT_EQ(workspace.allocations, 1);
    EXPECT_EQ(rank.device.memory().total.current_bytes, before);
    return absl::OkStatus();
  }));
}

TEST(DBufferCopyTest, MakesANewBuffer) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const DBuffer grads,
                             Allocate(group, "[P, P]", rank));
    FillTensors(grads, static_cast<float>(1 + 10 * rank.rank));
    TESSERA_ASSIGN_OR_RETURN(
        const DBuffer sum,
        grads.Copy(Parse("[R, R]"), "sum", rank.comms, rank.stream));
    for (int i = 0; i < group->num_tensors(); ++i) {
      float value = 0;
      for (float x : Floats(sum.TensorPiece(i))) EXPECT_EQ(x, 64 * ++value);
    }
    EXPECT_EQ(rank.device.memory().by_tag["sum"].current_bytes, 256 * 4);
    EXPECT_EQ(BufferPlacementsToString(grads.placements()), "[P(sum), P(sum)]");
    EXPECT_THAT(
        grads.Copy(Parse("[Flat, R]"), "x", rank.comms, rank.stream).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("axis 'dp_outer' is Flat")));
    return absl::OkStatus();
  }));
}

// --- The resting gradient of HSDP -------------------------------------------

TEST(DBufferTensorTest, APartialTensorReducesByHandToTheRightValue) {
  const GroupPtr group = HsdpGroup();
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(DBuffer grads, Allocate(group, "[P, P]", rank));
    FillTensors(grads, static_cast<float>(1 + 10 * rank.rank));
    TESSERA_RETURN_IF_ERROR(
        grads.ConvertTo(Parse("[P, Flat]"), rank.comms, rank.stream));
    for (int i = 0; i < group->num_tensors(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(const ShardedTensor resting,
                               grads.Tensor(i).Sharded());
      const Layout& layout = resting.layout();
      EXPECT_EQ(layout.placement(0), Placement::Partial());
      EXPECT_TRUE(layout.placement(1).is_ragged());
      TESSERA_ASSIGN_OR_RETURN(
          const Layout reduced,
          layout.With({Placement::Replicate(), layout.placement(1)}));
      TESSERA_ASSIGN_OR_RETURN(
          const ShardedTensor result,
          Redistribute(resting, reduced, Topology::LocalCpu(), rank.comms,
                       rank.stream));
      TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
      const Interval piece = *reduced.RegionOf(rank.rank).flat;
      for (int64_t k = 0; k < piece.size(); ++k) {
        // (1 + 11 + 21 + 31) times the element's number from 1.
        EXPECT_EQ(Floats(result.local())[k],
                  64 * static_cast<float>(piece.begin + k + 1));
      }
    }
    return absl::OkStatus();
  }));
}

// What is enqueued before an error still writes to the copy, which nobody gets.
TEST(DBufferCopyTest, AnErrorLeavesOtherMemoryAlone) {
  LocalRunOptions options;
  options.device.streams = CpuStreams::kWorker;
  (void)RunLocalRanks(
      2,
      [](LocalRank& rank) -> absl::Status {
        const DeviceMesh mesh = *DeviceMesh::Parse("a=2,b=1");
        BufferGroup::Options group_options;
        group_options.axes = {0, 1};
        group_options.num_flat_axes = 2;
        const auto group = *BufferGroup::Create(
            mesh, {{"w", *Layout::Parse("f32[1024] [R, R]", mesh)}},
            group_options);
        TESSERA_ASSIGN_OR_RETURN(
            const DBuffer source,
            DBuffer::Allocate(group, *ParseBufferPlacements("[P(sum), P(sum)]"),
                              DType::kF32, rank.rank, rank.device, "source",
                              rank.stream));
        TESSERA_ASSIGN_OR_RETURN(Communicator* const along_a,
                                 rank.comms.Get(mesh, {0}, rank.stream));
        TESSERA_RETURN_IF_ERROR(
            rank.comms.Get(mesh, {1}, rank.stream).status());
        along_a->Abort(absl::AbortedError("lost"));
        TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
        std::latch may_go_on(1);
        TESSERA_RETURN_IF_ERROR(rank.stream.Launch({.name = "late"}, [&] {
          may_go_on.wait();
          return absl::OkStatus();
        }));
        EXPECT_FALSE(source
                         .Copy(*ParseBufferPlacements("[R, R]"), "copy",
                               rank.comms, rank.stream)
                         .ok());
        constexpr int kElements = 1024;
        TESSERA_ASSIGN_OR_RETURN(
            const Buffer mine,
            rank.device.Allocate(kElements * sizeof(float), "mine"));
        float* const values = static_cast<float*>(mine.data());
        std::fill_n(values, kElements, 7.0f);
        may_go_on.count_down();
        (void)rank.stream.Synchronize();
        EXPECT_EQ(std::count(values, values + kElements, 7.0f), kElements);
        return absl::OkStatus();
      },
      options);
}

}  // namespace
}  // namespace tessera
