// Buffers in memory that NCCL has registered.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/nccl/nccl_window.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/dbuffer/dbuffer.h"
#include "tessera/testing/communicators.h"
#include "tests/dbuffer/hsdp_buffers.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/nccl_network.h"
#include "tests/emulation/run_emulated_ranks.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::testing::Each;
using testing::GroupPtr;
using ::testing::HasSubstr;
using testing::Parse;
using testing::StatusIs;

constexpr int kRanks = 4;

int64_t NumRegistered(int gpu) {
  return Machine::current()->nccl().num_registered(gpu);
}
int64_t NumRegistrations(int gpu) {
  return Machine::current()->nccl().num_registrations(gpu);
}

// Reduces and gathers what the ranks have, as a gradient is.
absl::Status SumOverRanks(DBuffer buffer, CommSet& comms, Stream& stream) {
  Kernels& kernels = stream.device().kernels();
  for (int i = 0; i < buffer.group().num_tensors(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        kernels.Fill(stream, buffer.WholeTensor(i), comms.rank() + 1.0));
  }
  for (const char* placements : {"[P, Flat]", "[Flat, Flat]", "[R, R]"}) {
    TESSERA_RETURN_IF_ERROR(buffer.ConvertTo(Parse(placements), comms, stream));
  }
  const TensorView v = buffer.WholeTensor(2);
  std::vector<float> values(v.num_elements());
  TESSERA_RETURN_IF_ERROR(kernels.CopyToHost(stream, values.data(), v));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  EXPECT_THAT(values, Each(10.0f));
  buffer.Release(stream);
  return absl::OkStatus();
}

// Two buffers, one after the other, on a device with this allocator.
absl::Status SumTwice(GpuRank& gpu, CudaAllocator* allocator) {
  TESSERA_ASSIGN_OR_RETURN(
      const auto device,
      CudaDevice::Create(gpu.rank, {.allocator = allocator}));
  {
    TESSERA_ASSIGN_OR_RETURN(const auto stream, device->NewStream("s"));
    TESSERA_ASSIGN_OR_RETURN(
        NcclWorld world,
        NcclWorld::Create(*device, NcclId(), gpu.rank, gpu.num_ranks));
    TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
    CommSet comms(*comm);
    const GroupPtr group = testing::HsdpGroup();
    for (int i = 0; i < 2; ++i) {
      TESSERA_ASSIGN_OR_RETURN(
          DBuffer buffer,
          DBuffer::Allocate(group, Parse("[P, P]"), DType::kF32, gpu.rank,
                            *device, "buffer", *stream));
      TESSERA_RETURN_IF_ERROR(SumOverRanks(std::move(buffer), comms, *stream));
    }
    // Those of both axes, and the world's, where they were made from.
    EXPECT_EQ(NumRegistered(gpu.rank), allocator == nullptr ? 0 : 3);
  }
  EXPECT_EQ(NumRegistered(gpu.rank), 0);
  Machine::current()->nccl().EndProgram(gpu.rank);
  return absl::OkStatus();
}

TEST(NcclMemoryTest, OneOptionOfTheDeviceRegistersBuffers) {
  EXPECT_OK(RunEmulatedGpus(kRanks, [](GpuRank& gpu) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto memory, NcclAllocator::Create());
    TESSERA_RETURN_IF_ERROR(SumTwice(gpu, memory.get()));
    EXPECT_EQ(NumRegistrations(gpu.rank), 3);
    return absl::OkStatus();
  }));
}

TEST(NcclMemoryTest, OtherMemoryIsNotRegistered) {
  EXPECT_OK(RunEmulatedGpus(kRanks, [](GpuRank& gpu) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(SumTwice(gpu, /*allocator=*/nullptr));
    EXPECT_EQ(NumRegistrations(gpu.rank), 0);
    return absl::OkStatus();
  }));
}

// Windows.

TEST(NcclWindowTest, HoldsABufferForAllGroupsThatRegisterIt) {
  EXPECT_OK(RunEmulatedRanks(kRanks, [](EmulatedRank& rank) -> absl::Status {
    const GroupPtr group = testing::HsdpGroup();
    const int64_t bytes =
        DBuffer::BytesFor(*group, Parse("[P, P]"), DType::kF32);
    TESSERA_ASSIGN_OR_RETURN(auto window,
                             NcclWindow::Create(rank.comms.world(), bytes));
    EXPECT_EQ(window->bytes(), bytes);
    for (int axis : {0, 1}) {
      TESSERA_ASSIGN_OR_RETURN(
          Communicator* const comm,
          rank.comms.GetTogether(group->mesh(), {axis}, rank.stream));
      TESSERA_RETURN_IF_ERROR(window->Register(*comm));
      TESSERA_RETURN_IF_ERROR(window->Register(*comm));
    }
    EXPECT_EQ(NumRegistered(rank.rank), 3);
    TESSERA_ASSIGN_OR_RETURN(
        DBuffer buffer,
        DBuffer::Wrap(group, Parse("[P, P]"), DType::kF32, rank.rank,
                      window->data(), window->bytes()));
    TESSERA_RETURN_IF_ERROR(
        SumOverRanks(std::move(buffer), rank.comms, rank.stream));
    window.reset();
    EXPECT_EQ(NumRegistered(rank.rank), 0);
    return absl::OkStatus();
  }));
}

TEST(NcclWindowTest, MayOutliveItsGroups) {
  EXPECT_OK(RunEmulatedGpus(2, [](GpuRank& gpu) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream, gpu.device.NewStream("s"));
    std::unique_ptr<NcclWindow> window;
    {
      TESSERA_ASSIGN_OR_RETURN(
          NcclWorld world,
          NcclWorld::Create(gpu.device, NcclId(), gpu.rank, gpu.num_ranks));
      TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*stream));
      TESSERA_ASSIGN_OR_RETURN(window, NcclWindow::Create(*comm, 64));
    }
    Machine::current()->nccl().EndProgram(gpu.rank);
    return absl::OkStatus();
  }));
}

TEST(NcclWindowTest, RejectsGroupsAndSizesThatDoNotFit) {
  EXPECT_OK(RunEmulatedRanks(2, [](EmulatedRank& rank) -> absl::Status {
    Communicator& world = rank.comms.world();
    EXPECT_THAT(NcclWindow::Create(world, 0),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("at least 1 byte, found 0")));
    testing::CountingCommunicator other(world);
    EXPECT_THAT(NcclWindow::Create(other, 64),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("wants a communicator of NCCL")));
    EXPECT_THAT(NcclWindow::Create(world, 64 << rank.rank),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("on all ranks, found 64,128")));
    // More than there is, on one of them.
    EXPECT_THAT(
        NcclWindow::Create(world, rank.rank == 0 ? 64 : int64_t{1} << 40),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 HasSubstr("a window of 'world' on rank 1")));
    return absl::OkStatus();
  }));
}

// As where they are neither on one host nor on one fabric.
TEST(NcclWindowTest, SaysWhereGpusReachNoneAndTheGroupGoesOn) {
  EXPECT_OK(RunEmulatedRanks(2, [](EmulatedRank& rank) -> absl::Status {
    Machine::current()->nccl().set_has_windows(false);
    Communicator& world = rank.comms.world();
    EXPECT_THAT(NcclWindow::Create(world, 64),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("no symmetric memory between the GPUs of "
                                   "'world'")));
    return world.HostAllGather("x").status();
  }));
}

TEST(NcclWindowTest, ARankThatDoesNotRegisterMakesTheOthersTimeOut) {
  EmulatedRunOptions options;
  options.gpus.machine.time_passes = true;
  EXPECT_OK(RunEmulatedRanks(
      2,
      [](EmulatedRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto side,
                                 rank.device.NewStream("side"));
        TESSERA_ASSIGN_OR_RETURN(const auto group, rank.comms.world().Subgroup(
                                                       {0, 1}, "both", *side));
        TESSERA_ASSIGN_OR_RETURN(const auto window,
                                 NcclWindow::Create(rank.comms.world(), 64));
        if (rank.rank == 1) return absl::OkStatus();
        group->SetTimeout(std::chrono::milliseconds(30));
        EXPECT_THAT(window->Register(*group),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             HasSubstr("ncclCommWindowRegister of 'both' "
                                       "waited 30 ms for other ranks")));
        return absl::OkStatus();
      },
      options));
}

}  // namespace
}  // namespace tessera::emulation
