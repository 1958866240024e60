// What coalesced all-reduces refuse, and how they fail.

#include <chrono>
#include <cstdint>
#include <latch>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/coalesced_all_reduce.h"
#include "tessera/testing/communicators.h"
#include "tests/cpu_streams.h"
#include "tests/fsdp/coalesced_tensors.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllReduces;
using ::tessera::testing::Coalesced;
using ::tessera::testing::CountingCommunicator;
using ::tessera::testing::FaultyCommunicator;
using ::tessera::testing::kRanks;
using ::tessera::testing::Mesh;
using ::tessera::testing::StatusIs;
using ::tessera::testing::Tensors;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class CoalescedAllReduceErrorsTest
    : public ::testing::TestWithParam<CpuStreams> {};

INSTANTIATE_TEST_SUITE_P(Streams, CoalescedAllReduceErrorsTest,
                         testing::BothStreams(), testing::StreamsName);

// Layouts.

// OK, or the error of summing (averaging) a tensor with this layout over "tp".
absl::Status RunWithLayout(absl::string_view layout_text, ReduceOp op,
                           absl::string_view mesh = "dp=1,tp=2") {
  return RunLocalRanks(2, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                             Coalesced(rank.comms, 8, "dp=1,tp=2"));
    TESSERA_ASSIGN_OR_RETURN(const Layout layout,
                             Layout::Parse(layout_text, Mesh(mesh)));
    TESSERA_ASSIGN_OR_RETURN(
        const ShardedTensor tensor,
        ShardedTensor::Allocate(layout, rank.rank, rank.device));
    const std::vector<CoalescedTensor> list = {tensor};
    const bool is_sum = op == ReduceOp::kSum;
    return coalesced.Run("tp", is_sum ? list : std::vector<CoalescedTensor>(),
                         is_sum ? std::vector<CoalescedTensor>() : list,
                         rank.stream);
  });
}

TEST(CoalescedAllReduceLayoutTest, TakesWhatIsReplicatedOrPendingByTheOp) {
  EXPECT_OK(RunWithLayout("f32[4,3] [R, R]", ReduceOp::kSum));
  EXPECT_OK(RunWithLayout("f32[4,3] [R, P(sum)]", ReduceOp::kSum));
  EXPECT_OK(RunWithLayout("f32[4,3] [S(0), P(avg)]", ReduceOp::kAvg));
  EXPECT_OK(RunWithLayout("f32[4,3] [Ragged(0,12)[0], R]", ReduceOp::kAvg));
}

TEST(CoalescedAllReduceLayoutTest, RejectsAnotherPendingOpNamingBoth) {
  EXPECT_THAT(
      RunWithLayout("f32[4,3] [R, P(avg)]", ReduceOp::kSum),
      StatusIs(kInvalid,
               AllOf(HasSubstr("coalesced all-reduce: on rank "),
                     HasSubstr("sum 0 f32[4,3] [R, P(avg)] is P(avg) along "
                               "axis 'tp', want R or P(sum)"))));
  EXPECT_THAT(RunWithLayout("f32[4,3] [R, P(sum)]", ReduceOp::kAvg),
              StatusIs(kInvalid, HasSubstr("is P(sum) along axis 'tp', want R "
                                           "or P(avg)")));
}

TEST(CoalescedAllReduceLayoutTest, RejectsPiecesAlongTheAxis) {
  EXPECT_THAT(RunWithLayout("f32[4,3] [R, S(0)]", ReduceOp::kSum),
              StatusIs(kInvalid, HasSubstr("is S(0) along axis 'tp'")));
  EXPECT_THAT(
      RunWithLayout("f32[4,3] [R, Ragged(0,5,12)[0]]", ReduceOp::kSum),
      StatusIs(kInvalid, HasSubstr("is Ragged(0,5,12)[0] along axis 'tp'")));
}

TEST(CoalescedAllReduceLayoutTest, RejectsAnotherMesh) {
  EXPECT_THAT(
      RunWithLayout("f32[4,3] [R, R]", ReduceOp::kSum, "a=1,tp=2"),
      StatusIs(kInvalid, HasSubstr("is on mesh 'a=1,tp=2', want 'dp=1,tp=2'")));
}

TEST(CoalescedAllReduceRejectsTest, RejectsWhatItCannotReduce) {
  EXPECT_OK(RunLocalRanks(kRanks, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(auto coalesced, Coalesced(rank.comms, 8));
    Tensors integers(DType::kI32, {4});
    EXPECT_THAT(coalesced.Run("tp", {}, integers.list(), rank.stream),
                StatusIs(kInvalid, HasSubstr("avg 0 is i32[4], want a floating "
                                             "dtype")));
    const CoalescedTensor strided(
        TensorView::Strided(integers.views()[0].data(),
                            TensorMeta::Parse("i32[2]").value(), {2})
            .value());
    EXPECT_THAT(coalesced.Run("tp", {strided}, {}, rank.stream),
                StatusIs(kInvalid, HasSubstr("sum 0 is i32[2] strides (2), "
                                             "want a contiguous view")));
    EXPECT_THAT(coalesced.Run("dp", integers.list(), {}, rank.stream),
                StatusIs(kInvalid, HasSubstr("'dp'")));
    return absl::OkStatus();
  }));
}

// Ranks that differ.

// What every rank gets where rank r gives lists[r], in chunks of chunks[r].
void ExpectDisagreement(const std::vector<std::vector<std::string>>& lists,
                        const std::vector<int64_t>& chunks,
                        const std::string& difference) {
  EXPECT_OK(RunLocalRanks(kRanks, [&](LocalRank& rank) -> absl::Status {
    std::vector<char> memory(1 << 12);
    std::vector<CoalescedTensor> sums;
    for (const std::string& meta : lists[rank.rank]) {
      sums.emplace_back(
          TensorView(memory.data(), TensorMeta::Parse(meta).value()));
    }
    TESSERA_ASSIGN_OR_RETURN(auto coalesced,
                             Coalesced(rank.comms, chunks[rank.rank]));
    EXPECT_THAT(coalesced.Run("tp", sums, {}, rank.stream),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         absl::StrCat("coalesced all-reduce: ranks of 'tp' "
                                      "give different pieces: entry ",
                                      difference)))
        << rank.rank;
    EXPECT_EQ(AllReduces(rank.comms).calls, 0);
    return absl::OkStatus();
  }));
}

TEST(CoalescedAllReduceDisagreementTest, EveryRankNamesTheFirstDifference) {
  const std::vector<std::string> usual = {"f32[6]", "f32[2,3]"};
  ExpectDisagreement({usual, usual, {"f32[6]", "f32[5]"}}, {8, 8, 8},
                     "2 is sum 1: f32[2,3] on rank 0 and sum 1: f32[5] on rank "
                     "2");
  // As many elements, cut elsewhere.
  ExpectDisagreement({usual, {"f32[8]", "f32[4]"}, usual}, {8, 8, 8},
                     "1 is sum 0: f32[6] on rank 0 and sum 0: f32[8] on rank "
                     "1");
  ExpectDisagreement({usual, usual, {}}, {8, 8, 8},
                     "1 is sum 0: f32[6] on rank 0 and nothing on rank 2");
  ExpectDisagreement({usual, usual, usual}, {8, 16, 8},
                     "0 is axis 'tp' in chunks of 8 bytes on rank 0 and axis "
                     "'tp' in chunks of 16 bytes on rank 1");
}

TEST(CoalescedAllReduceDisagreementTest, ComparesListsOnce) {
  EXPECT_OK(RunLocalRanks(kRanks, [](LocalRank& rank) -> absl::Status {
    CountingCommunicator world(rank.comms.world());
    CommSet comms(world);
    Tensors first(DType::kF32, {6, 6});
    Tensors other(DType::kF32, {5, 7});
    TESSERA_ASSIGN_OR_RETURN(auto coalesced, Coalesced(comms, 8));
    for (int64_t expected : {1, 1, 2, 2}) {
      const Tensors& tensors = expected == 1 ? first : other;
      TESSERA_RETURN_IF_ERROR(
          coalesced.Run("tp", tensors.list(), {}, rank.stream));
      EXPECT_EQ(world.host_all_gathers(), expected);
    }
    return absl::OkStatus();
  }));
}

// A rank that comes with a new list while the others know theirs is in another
// place of the program than they are: they do not meet, and where nobody's
// stream is busy, wait for each other.
TEST_P(CoalescedAllReduceErrorsTest,
       RankWithANewListOfItsOwnIsAnErrorOnAllOfThem) {
  const absl::Status status = RunLocalRanks(
      kRanks,
      [](LocalRank& rank) -> absl::Status {
        Tensors usual(DType::kF32, {6, 6});
        Tensors other(DType::kF32, {6, 7});
        TESSERA_ASSIGN_OR_RETURN(auto coalesced, Coalesced(rank.comms, 40));
        TESSERA_RETURN_IF_ERROR(
            coalesced.Run("tp", usual.list(), {}, rank.stream));
        const Tensors& next = rank.rank == 2 ? other : usual;
        absl::Status run = coalesced.Run("tp", next.list(), {}, rank.stream);
        run.Update(rank.stream.Synchronize());
        EXPECT_THAT(run.message(), AnyOf(HasSubstr("did not come to"),
                                         HasSubstr("wait for each other")));
        return absl::OkStatus();
      },
      {.device = {.streams = GetParam()},
       .world = {.timeout = std::chrono::milliseconds(1000)}});
  EXPECT_FALSE(status.ok());
}

TEST_P(CoalescedAllReduceErrorsTest, ErrorOfOneRankReachesAllOfThem) {
  const absl::Status status = RunLocalRanks(
      kRanks,
      [](LocalRank& rank) -> absl::Status {
        FaultyCommunicator world(
            rank.comms.world(), {.kind = CollectiveKind::kAllReduce,
                                 .call = rank.rank == 1 ? 1 : 1000,
                                 .error = absl::UnavailableError("link down")});
        CommSet comms(world);
        Tensors tensors(DType::kF32, {6, 6});
        TESSERA_ASSIGN_OR_RETURN(auto coalesced, Coalesced(comms, 40));
        absl::Status run = coalesced.Run("tp", tensors.list(), {}, rank.stream);
        run.Update(rank.stream.Synchronize());
        EXPECT_THAT(run,
                    StatusIs(rank.rank == 1 ? absl::StatusCode::kUnavailable
                                            : absl::StatusCode::kAborted,
                             HasSubstr("link down")));
        EXPECT_FALSE(rank.stream.status().ok());
        return absl::OkStatus();
      },
      {.device = {.streams = GetParam()}});
  // It stays in the streams.
  EXPECT_THAT(status.message(), HasSubstr("link down"));
}

TEST_P(CoalescedAllReduceErrorsTest, StreamThatFailedOnOneRankFailsAllOfThem) {
  std::latch others(kRanks - 1);
  const absl::Status status = RunLocalRanks(
      kRanks,
      [&](LocalRank& rank) -> absl::Status {
        if (rank.rank == 1) {
          rank.stream
              .Launch({.name = "fail"}, [] { return absl::DataLossError("x"); })
              .IgnoreError();
          rank.stream.Synchronize().IgnoreError();
        }
        Tensors tensors(DType::kF32, {6, 6});
        TESSERA_ASSIGN_OR_RETURN(auto coalesced, Coalesced(rank.comms, 40));
        absl::Status run = coalesced.Run("tp", tensors.list(), {}, rank.stream);
        run.Update(rank.stream.Synchronize());
        if (rank.rank == 1) {
          EXPECT_THAT(run, StatusIs(absl::StatusCode::kDataLoss, "x"));
          others.wait();  // They learn of it while this rank is still there.
        } else {
          EXPECT_THAT(run, StatusIs(absl::StatusCode::kAborted,
                                    HasSubstr("DATA_LOSS: x")));
          others.count_down();
        }
        return absl::OkStatus();
      },
      {.device = {.streams = GetParam()},
       .world = {.timeout = std::chrono::seconds(10)}});
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace tessera
