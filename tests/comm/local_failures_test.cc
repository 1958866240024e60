#include "tests/comm/local_failures.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/temporary_folder.h"

namespace tessera {
namespace {

using ::tessera::testing::IsOk;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::kLong;
using ::tessera::testing::LocalFailures;
using ::tessera::testing::StatusIs;
using ::tessera::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using std::chrono::milliseconds;

INSTANTIATE_TEST_SUITE_P(Streams, LocalFailures, testing::BothStreams(),
                         testing::StreamsName);

// Memory for the calls of a rank.
struct Floats {
  std::array<float, 64> memory = {};
  TensorView View(absl::string_view meta) {
    return TensorView(memory.data(), TensorMeta::Parse(meta).value());
  }
};

ExtentSplit Sizes(absl::Span<const int64_t> sizes) {
  return ExtentSplit::Explicit(sizes).value();
}

Collective SumOf(const TensorView& view) {
  Collective call;
  call.kind = CollectiveKind::kAllReduce;
  call.send = view;
  call.recv = view;
  return call;
}

struct Disagreement {
  std::string name;
  // The call of rank 1, and that of the two others.
  std::function<absl::Status(Communicator&)> odd;
  std::function<absl::Status(Communicator&)> common;
  std::string difference;
};

std::vector<Disagreement> Disagreements() {
  // Nothing reads or writes through these views: the calls never start.
  static Floats floats;
  const TensorView f12 = floats.View("f32[12]");
  const auto all_reduce = [f12](Communicator& c) {
    return c.AllReduce(ReduceOp::kSum, f12, f12);
  };
  const auto scatter = [f12](const ExtentSplit& split, int64_t own) {
    return [=](Communicator& c) {
      return c.ReduceScatter(ReduceOp::kSum, f12, f12.Slice(0, {0, own}), 0,
                             split);
    };
  };
  const auto gather = [](int dim) {
    return [=](Communicator& c) {
      return c.AllGather(floats.View(dim == 0 ? "f32[1,3]" : "f32[3,1]"),
                         floats.View("f32[3,3]"), dim);
    };
  };
  const auto to_all = [](const std::vector<int64_t>& sizes) {
    return [=](Communicator& c) {
      return c.AllToAll(floats.View("f32[6]"), 0, {}, floats.View("f32[6]"), 0,
                        Sizes(sizes));
    };
  };
  return {
      {"kind", gather(0), all_reduce,
       "ranks 0,2 call all_reduce sum f32[12], "
       "rank 1 calls all_gather f32[3,3] dim 0 split ceil"},
      {"op",
       [f12](Communicator& c) { return c.AllReduce(ReduceOp::kMax, f12, f12); },
       all_reduce,
       "ranks 0,2 call all_reduce sum f32[12], "
       "rank 1 calls all_reduce max f32[12]"},
      {"dtype",
       [](Communicator& c) {
         const TensorView view = floats.View("i32[12]");
         return c.AllReduce(ReduceOp::kSum, view, view);
       },
       all_reduce, "rank 1 calls all_reduce sum i32[12]"},
      {"shape",
       [](Communicator& c) {
         const TensorView view = floats.View("f32[3,4]");
         return c.AllReduce(ReduceOp::kSum, view, view);
       },
       all_reduce, "rank 1 calls all_reduce sum f32[3,4]"},
      {"split", scatter(Sizes({4, 4, 4}), 4), scatter({}, 4),
       "ranks 0,2 call reduce_scatter sum f32[12] dim 0 split ceil, "
       "rank 1 calls reduce_scatter sum f32[12] dim 0 split (4,4,4)"},
      {"dim", gather(1), gather(0),
       "rank 1 calls all_gather f32[3,3] dim 1 split ceil"},
      {"root", [f12](Communicator& c) { return c.Broadcast(f12, 1); },
       [f12](Communicator& c) { return c.Broadcast(f12, 2); },
       "ranks 0,2 call broadcast f32[12] root 2, "
       "rank 1 calls broadcast f32[12] root 1"},
      {"all_to_all", to_all({3, 2, 1}), to_all({2, 2, 2}),
       "rank 0 sends f32[2] to rank 1, which expects f32[3]"},
      {"message_shape",
       [](Communicator& c) {
         return c.SendRecv({{0, floats.View("f32[5]")}}, {});
       },
       [](Communicator& c) {
         return c.rank() == 2 ? c.SendRecv({}, {})
                              : c.SendRecv({}, {{1, floats.View("f32[4]")}});
       },
       "rank 1 sends f32[5] to rank 0, which expects f32[4]"},
      {"message_count",
       [](Communicator& c) {
         return c.SendRecv({{2, floats.View("f32[5]")}}, {});
       },
       [](Communicator& c) { return c.SendRecv({}, {}); },
       "rank 1 sends f32[5] to rank 2, which expects nothing more"},
      {"number of calls",
       [](Communicator& c) { return c.Issue({SumOf(floats.View("f32[4]"))}); },
       [](Communicator& c) {
         return c.Issue(
             {SumOf(floats.View("f32[4]")), SumOf(floats.View("f32[2]"))});
       },
       "rank 0 launches 2 calls at once, rank 1 1"},
      {"one of several calls",
       [](Communicator& c) {
         return c.Issue(
             {SumOf(floats.View("f32[4]")), SumOf(floats.View("f32[3]"))});
       },
       [](Communicator& c) {
         return c.Issue(
             {SumOf(floats.View("f32[4]")), SumOf(floats.View("f32[2]"))});
       },
       "call 1 of 2: ranks 0,2 call all_reduce sum f32[2], rank 1 calls "
       "all_reduce sum f32[3]"},
  };
}

TEST_P(LocalFailures, DisagreementIsReportedOnEveryRank) {
  for (const Disagreement& d : Disagreements()) {
    SCOPED_TRACE(d.name);
    std::vector<absl::Status> later(3);
    const std::vector<absl::Status> results = Results(3, [&](LocalRank& rank) {
      Communicator& dp = rank.comms.world();
      EXPECT_OK(dp.Barrier());
      absl::Status status = rank.rank == 1 ? d.odd(dp) : d.common(dp);
      status.Update(rank.stream.Synchronize());
      later[rank.rank] = dp.Barrier();
      return status;
    });
    EXPECT_THAT(
        results,
        Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                      AllOf(HasSubstr("comm: ranks disagree at operation 1 of "
                                      "'dp': "),
                            HasSubstr(d.difference)))));
    EXPECT_THAT(later, Each(StatusIs(absl::StatusCode::kAborted,
                                     AllOf(HasSubstr("comm: 'dp' is aborted: "),
                                           HasSubstr(d.difference)))));
  }
}

TEST_P(LocalFailures, SkippedCallShowsAtTheNextOne) {
  const std::vector<absl::Status> results = Results(4, [](LocalRank& rank) {
    Floats floats;
    Communicator& dp = rank.comms.world();
    const TensorView view = floats.View("f32[4]");
    absl::Status status;
    if (rank.rank != 3) status = dp.AllReduce(ReduceOp::kSum, view, view);
    // Where the first operation has failed already, this one finds the group
    // aborted.
    const absl::Status next = dp.Broadcast(view, 0);
    status.Update(rank.stream.Synchronize());  // before the memory goes
    status.Update(next);
    return status;
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("at operation 0 of 'dp': ranks 0,1,2 "
                                      "call all_reduce sum f32[4], rank 3 "
                                      "calls broadcast f32[4] root 0"))));
}

TEST_P(LocalFailures, RejectedCallTakesNoPart) {
  const std::vector<absl::Status> results = Results(2, [](LocalRank& rank) {
    Communicator& dp = rank.comms.world();
    if (rank.rank == 1) {
      EXPECT_THAT(dp.Broadcast(TensorView(), 2),
                  StatusIs(absl::StatusCode::kInvalidArgument));
    }
    return dp.Barrier();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(LocalFailures, TimeoutNamesWhoDidNotCome) {
  std::latch others(2);
  const std::vector<absl::Status> results = Results(
      4,
      [&](LocalRank& rank) {
        if (rank.rank % 2 == 1) others.wait();
        absl::Status status = rank.comms.world().Barrier();
        status.Update(rank.stream.Synchronize());
        if (rank.rank % 2 == 0) others.count_down();
        return status;
      },
      milliseconds(1000));
  const std::string message =
      "ranks 1,3 did not come to barrier, operation 0 of 'dp', within 1000 ms";
  for (int rank : {0, 2}) {
    EXPECT_THAT(results[rank], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        "comm: " + message));
  }
  for (int rank : {1, 3}) {
    EXPECT_THAT(results[rank], StatusIs(absl::StatusCode::kAborted,
                                        "comm: 'dp' is aborted: " + message));
  }
}

// Rank 0 alone is in a hurry, and only in this group.
TEST_P(LocalFailures, TimeoutIsSetForOneCommunicatorOfOneRank) {
  std::latch others(2);
  const std::vector<absl::Status> results =
      Results(3, [&](LocalRank& rank) -> absl::Status {
        Communicator& dp = rank.comms.world();
        TESSERA_ASSIGN_OR_RETURN(const auto tp,
                                 dp.Subgroup({0, 1, 2}, "tp", rank.stream));
        if (rank.rank == 0) dp.SetTimeout(milliseconds(50));
        if (rank.rank == 2) std::this_thread::sleep_for(milliseconds(300));
        absl::Status status = tp->Barrier();
        status.Update(rank.stream.Synchronize());
        EXPECT_OK(status);
        if (rank.rank == 2) {
          others.wait();
          return absl::OkStatus();
        }
        status.Update(dp.Barrier());
        status.Update(rank.stream.Synchronize());
        others.count_down();
        return status;
      });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                   HasSubstr("rank 2 did not come to barrier, "
                                             "operation 0 of 'dp', within 50 "
                                             "ms")));
}

TEST_P(LocalFailures, AbortEndsPendingAndLaterOperations) {
  const std::vector<absl::Status> results = Results(3, [](LocalRank& rank) {
    Communicator& dp = rank.comms.world();
    if (rank.rank != 2) {
      absl::Status status = dp.Barrier();
      status.Update(rank.stream.Synchronize());
      EXPECT_EQ(dp.Barrier().code(), absl::StatusCode::kAborted);
      EXPECT_EQ(dp.HostAllGather("x").status().code(),
                absl::StatusCode::kAborted);
      return status;
    }
    std::this_thread::sleep_for(milliseconds(20));
    dp.Abort(absl::InternalError("the disk is full"));
    dp.Abort(absl::InternalError("a second reason"));
    return dp.Barrier();
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kAborted,
                            "comm: 'dp' is aborted: by rank 2: INTERNAL: the "
                            "disk is full")));
}

TEST_P(LocalFailures, AbortEndsAPendingHostAllGather) {
  const std::vector<absl::Status> results = Results(2, [](LocalRank& rank) {
    Communicator& dp = rank.comms.world();
    if (rank.rank == 1) {
      dp.Abort(absl::CancelledError("enough"));
      return absl::OkStatus();
    }
    return dp.HostAllGather("x").status();
  });
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("enough")));
}

TEST_P(LocalFailures, AbortHasNoEffectInAGroupOfOne) {
  const std::vector<absl::Status> results = Results(1, [](LocalRank& rank) {
    Communicator& dp = rank.comms.world();
    dp.Abort(absl::CancelledError("enough"));
    EXPECT_OK(dp.HostAllGather("x").status());
    EXPECT_OK(dp.Split(0, 0, "tp", rank.stream).status());
    return dp.Barrier();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

// Whenever an abort comes, an operation ends the same way on all ranks, and
// none of them returns while others use its memory: each one overwrites it at
// once, which would show in the others' results, and to sanitizers.
TEST_P(LocalFailures, AbortLeavesNoReadersBehind) {
  constexpr int kRanks = 4;
  constexpr int32_t kSum = 1 + 2 + 3 + 4;
  constexpr int64_t kElements = 100'000;
  for (int trial = 0; trial < 30; ++trial) {
    const std::vector<absl::Status> results =
        Results(kRanks, [&](LocalRank& rank) {
          std::vector<int32_t> values(kElements, rank.rank + 1);
          const TensorView view =
              TensorView::Flat(values.data(), DType::kI32, kElements);
          Communicator& dp = rank.comms.world();
          std::jthread aborter;
          if (rank.rank == trial % kRanks) {
            aborter = std::jthread([&dp, trial] {
              std::this_thread::sleep_for(
                  std::chrono::microseconds(50 * trial));
              dp.Abort(absl::CancelledError("at some time"));
            });
          }
          absl::Status status;
          do {
            std::fill(values.begin(), values.end(), rank.rank + 1);
            status = dp.AllReduce(ReduceOp::kSum, view, view);
            status.Update(rank.stream.Synchronize());
          } while (status.ok() &&
                   std::count(values.begin(), values.end(), kSum) == kElements);
          std::fill(values.begin(), values.end(), -1);
          return status;
        });
    ASSERT_THAT(results, Each(StatusIs(absl::StatusCode::kAborted,
                                       HasSubstr("at some time"))));
  }
}

TEST_P(LocalFailures, StreamThatFailsBeforeAnOperationAbortsTheGroup) {
  const std::vector<absl::Status> results = Results(3, [](LocalRank& rank) {
    std::promise<void> enqueued;
    absl::Status status;
    if (rank.rank == 1) {
      status =
          rank.stream.Launch({.name = "kernel"},
                             [inline_stream = GetParam() == CpuStreams::kInline,
                              ready = enqueued.get_future()]() mutable {
                               if (!inline_stream) ready.wait();
                               return absl::InternalError("the kernel failed");
                             });
    }
    const absl::Status barrier = rank.comms.world().Barrier();
    enqueued.set_value();
    status.Update(barrier);
    status.Update(rank.stream.Synchronize());
    return status;
  });
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kInternal,
                                   HasSubstr("the kernel failed")));
  for (int rank : {0, 2}) {
    EXPECT_THAT(results[rank],
                StatusIs(absl::StatusCode::kAborted,
                         "comm: 'dp' is aborted: the stream of rank 1 failed "
                         "before barrier, operation 0: the kernel failed"));
  }
}

TEST_P(LocalFailures, RankThatHasLeftIsNotWaitedFor) {
  const std::vector<absl::Status> results = Results(3, [](LocalRank& rank) {
    Communicator& dp = rank.comms.world();
    absl::Status status = dp.Barrier();
    if (rank.rank != 1) status.Update(dp.Barrier());
    return status;
  });
  EXPECT_OK(results[1]);
  for (int rank : {0, 2}) {
    EXPECT_THAT(results[rank],
                StatusIs(absl::StatusCode::kAborted,
                         "comm: rank 1 has left before barrier, operation 1 "
                         "of 'dp': it has destroyed its communicator"));
  }
}

TEST_P(LocalFailures, RankThatLeavesDoesNotDisturbWhatItTookPartIn) {
  for (int trial = 0; trial < 200; ++trial) {
    ASSERT_OK(RunLocalRanks(
        4,
        [](LocalRank& rank) -> absl::Status {
          std::vector<int64_t> values(rank.rank + 1, rank.rank);
          Communicator& world = rank.comms.world();
          const TensorView view =
              TensorView::Flat(values.data(), DType::kI64, 1);
          TESSERA_RETURN_IF_ERROR(world.AllReduce(ReduceOp::kMax, view, view));
          TESSERA_RETURN_IF_ERROR(rank.stream.Synchronize());
          EXPECT_EQ(values[0], 3);
          return world.HostAllGather("bye").status();
        },
        options()));
  }
}

// A rank stays away from the last of three collectives.
TEST_P(LocalFailures, FailureLeavesTheLastCollectivesOfEachRankInAFile) {
  const TemporaryFolder folder;
  LocalWorld world(2, options().world);
  std::latch failed(1);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      CpuDevice device(options().device);
      const auto stream = device.NewStream("compute").value();
      const auto log = std::make_shared<CommLog>(CommLog::Options{
          .dump_folder = folder.path(), .logger = {nullptr, {}}});
      const auto comm = world.Join(rank, *stream, log).value();
      Floats floats;
      const TensorView view = floats.View("f32[8]");
      EXPECT_OK(comm->AllReduce(ReduceOp::kSum, view, view));
      EXPECT_OK(comm->Broadcast(view, 0));
      EXPECT_OK(stream->Synchronize());
      if (rank == 1) return failed.wait();
      comm->SetTimeout(milliseconds(100));
      (void)comm->AllReduce(ReduceOp::kMax, view, view);
      EXPECT_THAT(stream->Synchronize(),
                  StatusIs(absl::StatusCode::kDeadlineExceeded));
      failed.count_down();
    });
  }
  threads.clear();
  EXPECT_THAT(
      internal::ReadFile(folder.File("tessera-rank0.txt")),
      IsOkAndHolds(
          "The last collectives of rank 0, oldest first, when one of them "
          "failed with\n"
          "\n"
          "DEADLINE_EXCEEDED: comm: rank 1 did not come to all_reduce, "
          "operation 2 of 'world', within 100 ms\n"
          "\n"
          "state    communicator  sequence  collective  op   dtype  elements  "
          "bytes received  ranks\n"
          "done     world         0         all_reduce  sum  f32    8         "
          "32              2\n"
          "done     world         1         broadcast   -    f32    8         "
          "0               2\n"
          "started  world         2         all_reduce  max  f32    8         "
          "32              2\n"));
}

// Rank 1 finds the parent aborted before it can join the new group.
TEST_P(LocalFailures, GroupThatAMemberCannotJoinFails) {
  std::latch joined(1);
  std::latch aborted(1);
  std::latch failed(1);
  const std::vector<absl::Status> results =
      Results(2, [&](LocalRank& rank) -> absl::Status {
        Communicator& dp = rank.comms.world();
        if (rank.rank == 1) {
          joined.wait();
          dp.Abort(absl::CancelledError("enough"));
          aborted.count_down();
          const absl::Status status =
              dp.Subgroup({0, 1}, "tp", rank.stream).status();
          failed.wait();
          return status;
        }
        TESSERA_ASSIGN_OR_RETURN(const auto tp,
                                 dp.Subgroup({0, 1}, "tp", rank.stream));
        joined.count_down();
        aborted.wait();
        absl::Status status = tp->Barrier();
        status.Update(rank.stream.Synchronize());
        failed.count_down();
        return status;
      });
  EXPECT_THAT(results[1],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("enough")));
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kAborted,
                       "comm: rank 1 cannot join 'tp': 'dp' is aborted: by "
                       "rank 1: CANCELLED: enough"));
}

// The same where the failed group is not the one that it is made from: nobody
// waits in that.
TEST_P(LocalFailures, GroupOfAGroupThatAMemberCannotJoinFails) {
  std::latch joined(1);
  std::latch aborted(1);
  std::latch failed(1);
  const std::vector<absl::Status> results =
      Results(2, [&](LocalRank& rank) -> absl::Status {
        Communicator& dp = rank.comms.world();
        if (rank.rank == 1) {
          joined.wait();
          dp.Abort(absl::CancelledError("enough"));
          aborted.count_down();
          failed.wait();
          return absl::OkStatus();
        }
        TESSERA_ASSIGN_OR_RETURN(const auto tp,
                                 dp.Subgroup({0, 1}, "tp", rank.stream));
        TESSERA_ASSIGN_OR_RETURN(const auto inner,
                                 tp->Subgroup({0, 1}, "inner", rank.stream));
        joined.count_down();
        aborted.wait();
        absl::Status status = inner->Barrier();
        status.Update(rank.stream.Synchronize());
        failed.count_down();
        return status;
      });
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kAborted,
                       "comm: rank 1 cannot join 'inner': 'dp' is aborted: by "
                       "rank 1: CANCELLED: enough"));
}

TEST_P(LocalFailures, GroupMadeAfterAMemberLeftFails) {
  LocalWorld world(2, {.timeout = kLong});
  world.Leave(1, absl::InternalError("out of luck"));
  CpuDevice device({.streams = GetParam()});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Stream> stream,
                       device.NewStream("compute"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Communicator> group,
                       world.Join(0, *stream));
  absl::Status status = group->Barrier();
  status.Update(stream->Synchronize());
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kAborted,
                       "comm: rank 1 has left before barrier, "
                       "operation 0 of 'world': INTERNAL: out of luck"));
}

}  // namespace
}  // namespace tessera
