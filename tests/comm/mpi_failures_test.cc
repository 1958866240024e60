#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/status_matchers.h"

// Run by three processes: a failure of any of them is one of the test.

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// A world with options of its own and a communicator "dp" of all three ranks.
class MpiFailures : public ::testing::Test {
 protected:
  void Start(const MpiWorld::Options& options) {
    ASSERT_OK_AND_ASSIGN(stream_, device_.NewStream("tested"));
    ASSERT_OK_AND_ASSIGN(MpiWorld world, MpiWorld::Create(options));
    ASSERT_OK_AND_ASSIGN(world_, world.Join(*stream_));
    ASSERT_EQ(world_->size(), 3);
    ASSERT_OK_AND_ASSIGN(dp_, world_->Split(0, world_->rank(), "dp", *stream_));
  }
  // Nobody goes on while another one still has to look.
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }

  absl::Status SumOn(Communicator& communicator, std::vector<float>& memory) {
    const TensorView view = TensorView::Flat(
        memory.data(), DType::kF32, static_cast<int64_t>(memory.size()));
    absl::Status status = communicator.AllReduce(ReduceOp::kSum, view, view);
    status.Update(stream_->Synchronize());
    return status;
  }
  int rank() const { return world_->rank(); }

  CpuDevice device_{{.streams = CpuStreams::kWorker}};
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> dp_;
};

TEST_F(MpiFailures, RankThatStaysAwayIsNamedAtTheTimeout) {
  Start({.timeout = milliseconds(1500)});
  std::vector<float> memory(5);
  if (rank() != 2) {
    EXPECT_THAT(SumOn(*dp_, memory),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         "comm: rank 2 did not come to all_reduce, operation 0 "
                         "of 'dp', within 1500 ms"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_THAT(dp_->Barrier(),
              StatusIs(absl::StatusCode::kAborted,
                       "comm: 'dp' is aborted: rank 2 did not come to "
                       "all_reduce, operation 0 of 'dp', within 1500 ms"));
}

TEST_F(MpiFailures, TimeoutIsSetForOneCommunicator) {
  Start({});
  dp_->SetTimeout(milliseconds(1000));
  std::vector<float> memory(5);
  if (rank() != 2) {
    EXPECT_THAT(SumOn(*dp_, memory),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("rank 2 did not come to all_reduce, "
                                   "operation 0 of 'dp', within 1000 ms")));
  }
}

TEST_F(MpiFailures, RankThatStaysAwayIsNamedWithoutChecks) {
  Start({.timeout = milliseconds(1500), .check = false});
  std::vector<float> memory(5);
  if (rank() != 2) {
    EXPECT_THAT(SumOn(*dp_, memory),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("rank 2 did not come to all_reduce")));
  }
}

TEST_F(MpiFailures, RankMissingFromASubgroupIsNamedAtTheTimeout) {
  Start({.timeout = milliseconds(1500)});
  if (rank() == 2) return;
  EXPECT_THAT(dp_->Subgroup({0, 1, 2}, "tp", *stream_).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 2 did not come to subgroup"),
                             HasSubstr("'dp'"))));
}

TEST_F(MpiFailures, AbortEndsTheWaitOfTheOthersWithItsReason) {
  Start({});
  const auto begin = std::chrono::steady_clock::now();
  std::vector<float> memory(5);
  if (rank() == 1) {
    dp_->Abort(absl::DataLossError("no more text"));
  } else {
    EXPECT_THAT(SumOn(*dp_, memory),
                StatusIs(absl::StatusCode::kAborted,
                         "comm: 'dp' is aborted: by rank 1: DATA_LOSS: no more "
                         "text"));
  }
  EXPECT_THAT(dp_->Barrier(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("no more text")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// Groups of one world have nothing to do with each other.
TEST_F(MpiFailures, OtherGroupsOutliveAnAbort) {
  Start({});
  ASSERT_OK_AND_ASSIGN(const auto stream, device_.NewStream("other"));
  ASSERT_OK_AND_ASSIGN(const auto tp,
                       world_->Subgroup({0, 1, 2}, "tp", *stream));
  if (rank() == 1) dp_->Abort(absl::CancelledError(""));
  std::vector<float> memory(5, 1.0f);
  const TensorView view = TensorView::Flat(memory.data(), DType::kF32, 5);
  EXPECT_OK(tp->AllReduce(ReduceOp::kSum, view, view));
  EXPECT_OK(stream->Synchronize());
  EXPECT_THAT(memory, Each(3.0f));
}

TEST_F(MpiFailures, StreamThatFailsFirstAbortsTheOthers) {
  Start({});
  std::vector<float> memory(5);
  if (rank() == 0) {
    std::promise<void> enqueued;
    ASSERT_OK(stream_->Launch({.name = "fails"}, [&] {
      enqueued.get_future().wait();
      return absl::DataLossError("a bad read");
    }));
    const TensorView view = TensorView::Flat(memory.data(), DType::kF32, 5);
    EXPECT_OK(dp_->AllReduce(ReduceOp::kSum, view, view));
    enqueued.set_value();
    EXPECT_THAT(stream_->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
  } else {
    EXPECT_THAT(SumOn(*dp_, memory),
                StatusIs(absl::StatusCode::kAborted,
                         HasSubstr("the stream of rank 0 failed before "
                                   "all_reduce, operation 0: a bad read")));
  }
}

TEST_F(MpiFailures, DisagreementOverPiecesAndMessagesIsFound) {
  Start({});
  std::vector<int32_t> memory(12);
  const auto flat = [&](int64_t elements) {
    return TensorView::Flat(memory.data(), DType::kI32, elements);
  };
  // Rank 1 sends three elements to rank 2, which expects one.
  std::vector<Transfer> sends;
  std::vector<Transfer> recvs;
  if (rank() == 1) sends.push_back({2, flat(3)});
  if (rank() == 2) recvs.push_back({1, flat(1)});
  absl::Status status = dp_->SendRecv(sends, recvs);
  status.Update(stream_->Synchronize());
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "comm: ranks disagree at operation 0 of 'dp': rank 1 "
                       "sends i32[3] to rank 2, which expects i32[1]"));
}

// All make the same call, in which what each sends is not what others expect.
TEST_F(MpiFailures, EqualCallsThatDisagreeAreFound) {
  Start({});
  std::vector<int32_t> memory(12);
  const TensorView send = TensorView::Flat(memory.data(), DType::kI32, 6);
  const TensorView recv = TensorView::Flat(memory.data() + 6, DType::kI32, 6);
  EXPECT_OK(dp_->AllToAll(send, 0, {}, recv, 0, {}));
  const ExtentSplit sizes = ExtentSplit::Explicit({1, 2, 3}).value();
  absl::Status status = dp_->AllToAll(send, 0, sizes, recv, 0, sizes);
  status.Update(stream_->Synchronize());
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "comm: ranks disagree at operation 1 of 'dp': rank 0 "
                       "sends i32[2] to rank 1, which expects i32[1]"));
}

// What is compared is longer than what comes with the first messages.
TEST_F(MpiFailures, DisagreementInALongLaunchIsFound) {
  Start({});
  std::vector<float> memory(120, 1.0f);
  std::vector<Collective> calls(40);
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].kind = CollectiveKind::kAllReduce;
    calls[i].send = TensorView::Flat(&memory[3 * i], DType::kF32, 3);
    calls[i].recv = calls[i].send;
  }
  EXPECT_OK(dp_->Issue(calls));
  EXPECT_OK(stream_->Synchronize());
  EXPECT_THAT(memory, Each(3.0f));
  if (rank() == 2) calls[39].op = ReduceOp::kMax;
  absl::Status status = dp_->Issue(calls);
  status.Update(stream_->Synchronize());
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "comm: ranks disagree at operation 1 of 'dp': call 39 "
                       "of 40: ranks 0,1 call all_reduce sum f32[3], rank 2 "
                       "calls all_reduce max f32[3]"));
}

TEST_F(MpiFailures, LargeMessagesGoInSeveral) {
  Start({.max_message_bytes = 1000});
  std::vector<float> memory(10001);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = i % 100;
  EXPECT_OK(SumOn(*dp_, memory));
  for (size_t i = 0; i < memory.size(); ++i) {
    ASSERT_EQ(memory[i], 3 * (i % 100));
  }
}

// Ranks count as in the communicator, not as in MPI_COMM_WORLD.
TEST_F(MpiFailures, WorldTakesAnyCommunicator) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0 ? 1 : 0, -world_rank, &comm);
  ASSERT_OK_AND_ASSIGN(MpiWorld world,
                       MpiWorld::CreateFrom(MPI_Comm_c2f(comm)));
  MPI_Comm_free(&comm);  // it has been duplicated
  EXPECT_EQ(world.num_ranks(), world_rank == 0 ? 1 : 2);
  EXPECT_EQ(world.rank(), world_rank == 1 ? 1 : 0);
  ASSERT_OK_AND_ASSIGN(const auto stream, device_.NewStream("tested"));
  ASSERT_OK_AND_ASSIGN(const auto comm_of_world, world.Join(*stream));
  EXPECT_THAT(
      comm_of_world->HostAllGather(absl::StrCat(world_rank)),
      IsOkAndHolds(world_rank == 0 ? std::vector<std::string>{"0"}
                                   : std::vector<std::string>{"2", "1"}));
}

TEST_F(MpiFailures, WorldRejectsWhatCannotBe) {
  EXPECT_THAT(MpiWorld::CreateFrom(MPI_Comm_c2f(MPI_COMM_NULL)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("null")));
  EXPECT_THAT(
      MpiWorld::Create({.max_message_bytes = int64_t{1} << 31}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("found 2147483648")));
  EXPECT_THAT(StartMpi(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("started already")));
}

TEST_F(MpiFailures, CallsThatDoNotFitAreRejectedAtOnce) {
  Start({});
  std::vector<float> memory(5);
  EXPECT_THAT(dp_->Broadcast(TensorView::Flat(memory.data(), DType::kF32, 5),
                             /*root=*/3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("root 3 is not in a group of 3")));
  EXPECT_OK(SumOn(*dp_, memory));
}

}  // namespace
}  // namespace tessera::testing
