// What stands in for NCCL finds what no program should do.

#include "tests/emulation/nccl_network.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/run_emulated_gpus.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

// What a rank of two has: an ncclComm_t, a stream, and 64 bytes.
struct Ends {
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  float* data;
};
using Program = std::function<void(Ends&)>;

absl::Status RunTwo(const Program& program) {
  return RunEmulatedGpus(2, [&](GpuRank& gpu) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream, gpu.device.NewStream("s"));
    TESSERA_ASSIGN_OR_RETURN(Buffer x,
                             gpu.device.Allocate(64, "x", stream.get()));
    cudaSetDevice(gpu.rank);
    Ends ends = {gpu.rank, nullptr,
                 static_cast<cudaStream_t>(stream->native_handle()),
                 static_cast<float*>(x.data())};
    EXPECT_EQ(ncclCommInitRank(&ends.comm, 2, ncclUniqueId{}, gpu.rank),
              ncclSuccess);
    program(ends);
    stream->Synchronize().IgnoreError();
    if (ends.comm != nullptr) ncclCommDestroy(ends.comm);
    Machine::current()->nccl().EndProgram(gpu.rank);
    x.ResetAfter(*stream);
    return absl::OkStatus();
  });
}

ncclResult_t Sum(const Ends& ends, size_t count = 16) {
  return ncclAllReduce(ends.data, ends.data, count, ncclFloat32, ncclSum,
                       ends.comm, ends.stream);
}

void ExpectReport(const Program& program, const char* problem) {
  EXPECT_THAT(RunTwo(program), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr(problem)));
}

TEST(NcclNetworkTest, LetsSoundProgramsPass) {
  EXPECT_OK(RunTwo([](Ends& ends) {
    EXPECT_EQ(Sum(ends), ncclSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(ends.data, 8, ncclFloat32, 1 - ends.rank, ends.comm,
                       ends.stream),
              ncclSuccess);
    EXPECT_EQ(ncclRecv(ends.data + 8, 8, ncclFloat32, 1 - ends.rank, ends.comm,
                       ends.stream),
              ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  }));
}

TEST(NcclNetworkTest, ReportsCallsThatDoNotMatch) {
  ExpectReport([](Ends& ends) { Sum(ends, ends.rank == 0 ? 16 : 8); },
               "ncclAllReduce of 8 of type 7");
  ExpectReport(
      [](Ends& ends) {
        if (ends.rank == 0) {
          Sum(ends);
        } else {
          ncclBroadcast(ends.data, ends.data, 16, ncclFloat32, 0, ends.comm,
                        ends.stream);
        }
      },
      "ncclBroadcast of 16 of type 7");
  ExpectReport(
      [](Ends& ends) {
        ncclBroadcast(ends.data, ends.data, 16, ncclFloat32, ends.rank,
                      ends.comm, ends.stream);
      },
      "at root 1");
  ExpectReport(
      [](Ends& ends) {
        if (ends.rank == 0) {
          ncclSend(ends.data, 16, ncclFloat32, 1, ends.comm, ends.stream);
        } else {
          ncclRecv(ends.data, 16, ncclInt32, 0, ends.comm, ends.stream);
        }
      },
      "a message of 16");
}

// The new one; null without a color.
ncclComm_t Split(const Ends& ends, int color, int key = 0,
                 const char* name = nullptr) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = name;
  ncclComm_t made = nullptr;
  ncclCommSplit(ends.comm, color, key, &made, &config);
  return made;
}

TEST(NcclNetworkTest, SplitsByColorAndKey) {
  EXPECT_OK(RunTwo([](Ends& ends) {
    const ncclComm_t both = Split(ends, /*color=*/3, /*key=*/-ends.rank);
    int rank = 0;
    int size = 0;
    ncclCommUserRank(both, &rank);
    ncclCommCount(both, &size);
    EXPECT_EQ(rank, 1 - ends.rank);
    EXPECT_EQ(size, 2);
    ncclCommDestroy(both);
    const ncclComm_t own = Split(ends, /*color=*/ends.rank);
    ncclCommCount(own, &size);
    EXPECT_EQ(size, 1);
    ncclCommDestroy(own);
    EXPECT_EQ(Split(ends, NCCL_SPLIT_NOCOLOR), nullptr);
  }));
}

TEST(NcclNetworkTest, ReportsSplitsThatDoNotMatch) {
  ExpectReport(
      [](Ends& ends) {
        if (ends.rank == 0) Sum(ends);
        Split(ends, NCCL_SPLIT_NOCOLOR);
        if (ends.rank == 1) Sum(ends);
      },
      "ncclCommSplit after 1 collectives, on another rank after 0");
  ExpectReport(
      [](Ends& ends) {
        ncclCommDestroy(Split(ends, 0, 0, ends.rank == 0 ? "dp" : "tp"));
      },
      "ncclCommSplit of color 0 for '");
  ExpectReport(
      [](Ends& ends) {
        if (ends.rank == 0) Split(ends, NCCL_SPLIT_NOCOLOR);
      },
      "rank 0 splits");
}

TEST(NcclNetworkTest, ReportsASplitWithOperationsUnderWay) {
  ExpectReport(
      [](Ends& ends) {
        Sum(ends);
        Split(ends, NCCL_SPLIT_NOCOLOR);
      },
      "ncclCommSplit with operations under way");
}

// NCCL would reach into memory that the peer did not mean.
TEST(NcclNetworkTest, ReportsPlacesInWindowsThatDiffer) {
  const auto run = [](bool differs) {
    return RunTwo([=](Ends& ends) {
      void* memory = nullptr;
      ncclMemAlloc(&memory, 128);
      ncclWindow_t window = nullptr;
      EXPECT_EQ(ncclCommWindowRegister(ends.comm, memory, 128, &window,
                                       NCCL_WIN_COLL_SYMMETRIC),
                ncclSuccess);
      float* const reached =
          static_cast<float*>(memory) + (differs && ends.rank == 1 ? 16 : 0);
      ncclAllReduce(ends.data, reached, 16, ncclFloat32, ncclSum, ends.comm,
                    ends.stream);
      cudaStreamSynchronize(ends.stream);
      ncclCommWindowDeregister(ends.comm, window);
      ncclMemFree(memory);
    });
  };
  EXPECT_OK(run(false));
  EXPECT_THAT(run(true), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("in the window of rank")));
}

TEST(NcclNetworkTest, ReportsAGroupWithoutEnd) {
  ExpectReport([](Ends&) { ncclGroupStart(); }, "a group has no end");
  ExpectReport([](Ends&) { ncclGroupEnd(); }, "ends that has not begun");
}

TEST(NcclNetworkTest, ReportsMemoryThatIsNotTheGpus) {
  ExpectReport(
      [](Ends& ends) {
        float host[16] = {};
        ncclAllReduce(host, ends.data, 16, ncclFloat32, ncclSum, ends.comm,
                      ends.stream);
        cudaStreamSynchronize(ends.stream);
      },
      "ncclAllReduce of memory that is not the GPU's");
  ExpectReport([](Ends& ends) { Sum(ends, 17); }, "which has 64");
}

TEST(NcclNetworkTest, ReportsAStreamOfAnotherGpu) {
  ExpectReport(
      [](Ends& ends) {
        cudaSetDevice(1 - ends.rank);
        cudaStream_t other = nullptr;
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaSetDevice(ends.rank);
        ncclAllReduce(ends.data, ends.data, 16, ncclFloat32, ncclSum, ends.comm,
                      other);
      },
      "a stream of another GPU");
}

TEST(NcclNetworkTest, ReportsUsesOfWhatIsGone) {
  ExpectReport(
      [](Ends& ends) {
        ncclCommDestroy(ends.comm);
        Sum(ends);
        ends.comm = nullptr;
      },
      "ncclAllReduce of an ncclComm_t that is gone");
  ExpectReport([](Ends& ends) { ends.comm = nullptr; }, "is not destroyed");
  ExpectReport([](Ends& ends) { ncclCommAbort(ends.comm); }, "freed twice");
}

TEST(NcclNetworkTest, ReportsUsesBeforeNcclIsDone) {
  ExpectReport(
      [](Ends& ends) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclComm_t early = nullptr;
        EXPECT_EQ(ncclCommInitRankConfig(&early, 2, ncclUniqueId{{'e'}},
                                         ends.rank, &config),
                  ncclInProgress);
        ncclAllReduce(ends.data, ends.data, 16, ncclFloat32, ncclSum, early,
                      ends.stream);
        ncclCommAbort(early);
      },
      "ncclAllReduce where NCCL is not done yet");
}

TEST(NcclNetworkTest, AMessageWithoutPartnerIsStuck) {
  ExpectReport(
      [](Ends& ends) {
        if (ends.rank == 0) {
          ncclSend(ends.data, 16, ncclFloat32, 1, ends.comm, ends.stream);
        }
      },
      "nothing can go on");
}

}  // namespace
}  // namespace tessera::emulation
