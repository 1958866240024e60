#include "tessera/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/host_scalar.h"
#include "tests/emulation/run_emulated_gpus.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Not;
using testing::StatusIs;

using Program = std::function<absl::Status(CudaDevice&)>;

// The program on one GPU.
absl::Status OnOneGpu(const Program& program, const GpuRunOptions& options = {},
                      GpuReport* report = nullptr) {
  return RunEmulatedGpus(
      1, [&](GpuRank& rank) { return program(rank.device); }, options, report);
}

TensorView Floats(const Buffer& buffer) {
  return TensorView::Flat(buffer.data(), DType::kF32, buffer.bytes() / 4);
}

// What `view` holds once the stream has come here.
absl::StatusOr<std::vector<float>> ValuesOf(const TensorView& view,
                                            Stream& stream) {
  std::vector<float> values(view.num_elements());
  TESSERA_RETURN_IF_ERROR(
      stream.device().kernels().CopyToHost(stream, values.data(), view));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  return values;
}

// Devices.

TEST(CudaDeviceTest, IsUnavailableWithoutAGpu) {
  EXPECT_THAT(CudaDeviceCount(), StatusIs(absl::StatusCode::kUnavailable,
                                          HasSubstr("cudaErrorNoDevice")));
  EXPECT_THAT(CudaDevice::Create(0), StatusIs(absl::StatusCode::kUnavailable,
                                              HasSubstr("want a GPU")));
}

TEST(CudaDeviceTest, RejectsAGpuThatThereIsNot) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) {
    EXPECT_THAT(CudaDeviceCount(), IsOkAndHolds(1));
    for (const int ordinal : {-1, 1}) {
      EXPECT_THAT(
          CudaDevice::Create(ordinal),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   HasSubstr(absl::StrCat("want a GPU in [0,1), found number ",
                                          ordinal))));
    }
    EXPECT_EQ(device.name(), "cuda:0");
    EXPECT_EQ(device.properties().gpu, "emulated");
    return absl::OkStatus();
  }));
}

TEST(CudaDeviceTest, LeavesTheCurrentDeviceOfTheThread) {
  EXPECT_OK(RunEmulatedGpus(2, [](GpuRank& rank) -> absl::Status {
    cudaSetDevice(1 - rank.rank);
    TESSERA_ASSIGN_OR_RETURN(const auto stream, rank.device.NewStream("s"));
    TESSERA_ASSIGN_OR_RETURN(const Buffer x, rank.device.Allocate(4, "x"));
    TESSERA_RETURN_IF_ERROR(
        rank.device.kernels().Fill(*stream, Floats(x), 1.0));
    TESSERA_RETURN_IF_ERROR(stream->Synchronize());
    EXPECT_EQ(CurrentGpu(), 1 - rank.rank);
    return absl::OkStatus();
  }));
}

// Streams and events.

TEST(CudaStreamTest, WorksInOrder) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_OK(OnOneGpu(
        [](CudaDevice& device) -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
          TESSERA_ASSIGN_OR_RETURN(Buffer x,
                                   device.Allocate(40, "x", stream.get()));
          for (const double value : {1.5, 2.5}) {
            TESSERA_RETURN_IF_ERROR(
                device.kernels().Fill(*stream, Floats(x), value));
          }
          TESSERA_ASSIGN_OR_RETURN(const auto values,
                                   ValuesOf(Floats(x), *stream));
          EXPECT_THAT(values, Each(2.5f));
          x.ResetAfter(*stream);
          return absl::OkStatus();
        },
        {.seed = seed}));
  }
}

// One stream fills, another one copies to the host; `waits` or not.
absl::Status FillAndCopy(CudaDevice& device, bool waits) {
  TESSERA_ASSIGN_OR_RETURN(const auto fills, device.NewStream("fills"));
  TESSERA_ASSIGN_OR_RETURN(const auto copies, device.NewStream("copies"));
  TESSERA_ASSIGN_OR_RETURN(const Buffer x, device.Allocate(40, "x"));
  TESSERA_RETURN_IF_ERROR(device.kernels().Fill(*fills, Floats(x), 2.5));
  if (waits) TESSERA_RETURN_IF_ERROR(copies->Wait(fills->Record()));
  TESSERA_ASSIGN_OR_RETURN(const auto values, ValuesOf(Floats(x), *copies));
  if (waits) {
    EXPECT_THAT(values, Each(2.5f));
  }
  return fills->Synchronize();
}

TEST(CudaStreamTest, WaitsForEventsOfOthers) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_OK(
        OnOneGpu([](CudaDevice& device) { return FillAndCopy(device, true); },
                 {.seed = seed}));
  }
}

TEST(CudaStreamTest, WithoutAWaitThereIsARace) {
  EXPECT_THAT(
      OnOneGpu([](CudaDevice& device) { return FillAndCopy(device, false); }),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("memcpy"), HasSubstr("not ordered"))));
}

TEST(CudaStreamTest, RejectsEventsOfAnotherKindOfDevice) {
  class Foreign final : public Event::State {
    absl::Status Synchronize(int64_t) override { return absl::OkStatus(); }
  };
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
    EXPECT_THAT(stream->Wait(Event(std::make_shared<Foreign>())),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("another kind of device")));
    return stream->Wait(Event());  // has passed
  }));
}

TEST(CudaStreamTest, ErrorsStayAndAreHandedOn) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto first, device.NewStream("first"));
    TESSERA_ASSIGN_OR_RETURN(const auto second, device.NewStream("second"));
    const Event before = first->Record();
    EXPECT_OK(before.Synchronize());
    const auto fails =
        StatusIs(absl::StatusCode::kInternal,
                 HasSubstr("no luck (stream 'first' of cuda:0)"));
    EXPECT_THAT(first->Launch({.name = "fails"},
                              [] { return absl::InternalError("no luck"); }),
                fails);
    const Event after = first->Record();
    bool has_run = false;
    EXPECT_THAT(first->Launch({.name = "more"},
                              [&] {
                                has_run = true;
                                return absl::OkStatus();
                              }),
                fails);
    EXPECT_FALSE(has_run);
    EXPECT_THAT(first->Synchronize(), fails);
    EXPECT_THAT(first->status(), fails);
    EXPECT_OK(before.Synchronize());
    EXPECT_THAT(after.Synchronize(), fails);
    EXPECT_OK(second->Wait(before));
    EXPECT_THAT(second->Wait(after), fails);
    EXPECT_THAT(second->status(), fails);
    return absl::OkStatus();
  }));
}

TEST(CudaStreamTest, EventsOutliveTheirStream) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    Event event;
    {
      TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
      event = stream->Record();
    }
    return event.Synchronize();
  }));
}

TEST(CudaStreamTest, WrapsTheCallers) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    cudaStream_t callers = nullptr;
    cudaStreamCreateWithPriority(&callers, 0, 0);
    {
      TESSERA_ASSIGN_OR_RETURN(const auto stream,
                               device.WrapStream(callers, "trainer"));
      EXPECT_EQ(stream->native_handle(), callers);
      EXPECT_EQ(stream->name(), "trainer");
      TESSERA_ASSIGN_OR_RETURN(Buffer x, device.Allocate(8, "x", stream.get()));
      TESSERA_RETURN_IF_ERROR(device.kernels().Fill(*stream, Floats(x), 1.0));
      x.ResetAfter(*stream);
    }
    EXPECT_FALSE(callers->destroyed);
    return absl::OkStatus();
  }));
}

TEST(CudaStreamTest, HasThePriorityOfItsName) {
  const auto priority = [](absl::string_view name) {
    return name == "gather" ? -100 : name == "idle" ? 100 : -2;
  };
  EXPECT_OK(OnOneGpu(
      [](CudaDevice& device) -> absl::Status {
        for (const auto& [name, wanted] :
             {std::pair("gather", -5), {"idle", 0}, {"compute", -2}}) {
          TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream(name));
          EXPECT_EQ(
              static_cast<cudaStream_t>(stream->native_handle())->priority,
              wanted)
              << name;
        }
        return absl::OkStatus();
      },
      {.device = {.stream_priority = priority}}));
}

// Gives the stream up, so that it comes to its end.
class AbortingMonitor final : public internal::StreamMonitor {
 public:
  absl::Status Check() override {
    aborted = true;
    return absl::DeadlineExceededError("a peer is lost");
  }

  bool aborted = false;
};

TEST(CudaStreamTest, AsksMonitorsWhileTheHostWaits) {
  EXPECT_OK(OnOneGpu([&](CudaDevice& device) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
    const Event before = stream->Record();
    EXPECT_OK(before.Synchronize());
    const auto monitor = std::make_shared<AbortingMonitor>();
    static_cast<internal::CudaStream&>(*stream).AddMonitor(monitor);
    TESSERA_RETURN_IF_ERROR(stream->Launch({.name = "slow"}, [&] {
      Machine::current()->Enqueue(
          static_cast<cudaStream_t>(stream->native_handle()),
          {.name = "slow", .ready = [=] { return monitor->aborted; }});
      return absl::OkStatus();
    }));
    const Event after = stream->Record();
    const auto fails = StatusIs(absl::StatusCode::kDeadlineExceeded,
                                HasSubstr("a peer is lost (stream 's'"));
    EXPECT_THAT(after.Synchronize(), fails);
    EXPECT_THAT(stream->status(), fails);
    EXPECT_OK(before.Synchronize());
    return absl::OkStatus();
  }));
}

// Captures.

cudaStream_t HandleOf(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

// What the streams are given in `body`, as a graph.
absl::StatusOr<cudaGraphExec_t> Capture(
    Stream& origin, const std::function<absl::Status()>& body) {
  cudaStreamBeginCapture(HandleOf(origin), cudaStreamCaptureModeThreadLocal);
  const absl::Status status = body();
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(HandleOf(origin), &graph);
  const absl::Cleanup destroy = [graph] { cudaGraphDestroy(graph); };
  TESSERA_RETURN_IF_ERROR(status);
  if (error != cudaSuccess) return absl::InternalError("no graph");
  cudaGraphExec_t exec = nullptr;
  cudaGraphInstantiate(&exec, graph, 0);
  return exec;
}

TEST(CudaStreamTest, IsCapturedWithThoseThatWaitForIt) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto first, device.NewStream("first"));
    TESSERA_ASSIGN_OR_RETURN(const auto second, device.NewStream("second"));
    TESSERA_ASSIGN_OR_RETURN(const Buffer x, device.Allocate(40, "x"));
    Kernels& kernels = device.kernels();
    TESSERA_RETURN_IF_ERROR(kernels.Fill(*first, Floats(x), 1.0));
    TESSERA_RETURN_IF_ERROR(first->Synchronize());
    const Event before = first->Record();
    TESSERA_RETURN_IF_ERROR(before.Synchronize());
    Event inside;
    TESSERA_ASSIGN_OR_RETURN(
        const cudaGraphExec_t graph, Capture(*first, [&]() -> absl::Status {
          TESSERA_RETURN_IF_ERROR(second->Wait(first->Record()));
          TESSERA_RETURN_IF_ERROR(second->Wait(before));  // has passed
          TESSERA_RETURN_IF_ERROR(kernels.Fill(*second, Floats(x), 2.0));
          inside = second->Record();
          return first->Wait(inside);
        }));
    TESSERA_ASSIGN_OR_RETURN(auto values, ValuesOf(Floats(x), *first));
    EXPECT_THAT(values, Each(1.0f));
    EXPECT_THAT(inside.Synchronize(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("was captured on stream 'second'")));
    cudaGraphLaunch(graph, HandleOf(*first));
    TESSERA_RETURN_IF_ERROR(first->Wait(inside));  // counts as passed
    TESSERA_ASSIGN_OR_RETURN(values, ValuesOf(Floats(x), *first));
    EXPECT_THAT(values, Each(2.0f));
    cudaGraphExecDestroy(graph);
    return second->Synchronize();
  }));
}

TEST(CudaStreamTest, InACaptureDoesNotWaitForWhatIsOutside) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    bool done = false;  // outlives the stream that asks for it
    TESSERA_ASSIGN_OR_RETURN(const auto captured, device.NewStream("captured"));
    TESSERA_ASSIGN_OR_RETURN(const auto outside, device.NewStream("outside"));
    TESSERA_RETURN_IF_ERROR(outside->Launch({.name = "slow"}, [&] {
      Machine::current()->Enqueue(
          HandleOf(*outside), {.name = "slow", .ready = [&] { return done; }});
      return absl::OkStatus();
    }));
    const Event event = outside->Record();
    EXPECT_THAT(
        Capture(*captured, [&] { return captured->Wait(event); }),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("stream 'captured' is captured, and waits for what "
                           "stream 'outside' was given before")));
    done = true;
    return absl::OkStatus();
  }));
}

// Memory.

TEST(CudaDeviceTest, FaultsWhereTheHostReadsItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(OnOneGpu([](CudaDevice& device) -> absl::Status {
                 TESSERA_ASSIGN_OR_RETURN(const Buffer x,
                                          device.Allocate(4, "x"));
                 return absl::InternalError(
                     absl::StrCat("read ", *static_cast<float*>(x.data())));
               }).IgnoreError(),
               "");
}

TEST(CudaDeviceTest, CountsMemoryExactlyAndWithinTheLimit) {
  EXPECT_OK(OnOneGpu(
      [](CudaDevice& device) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
        TESSERA_ASSIGN_OR_RETURN(Buffer x,
                                 device.Allocate(600, "x", stream.get()));
        EXPECT_THAT(device.Allocate(401, "y"),
                    StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr("limit 1000")));
        TESSERA_ASSIGN_OR_RETURN(const Buffer y, device.Allocate(400, "y"));
        EXPECT_EQ(device.memory().total.current_bytes, 1000);
        x.ResetAfter(*stream);
        EXPECT_EQ(device.memory().total.current_bytes, 400);
        EXPECT_EQ(device.memory().by_tag.at("x").peak_bytes, 600);
        return absl::OkStatus();
      },
      {.device = {.memory_limit_bytes = 1000}}));
}

TEST(CudaDeviceTest, IsExhaustedWhereTheGpuIs) {
  EXPECT_OK(OnOneGpu(
      [](CudaDevice& device) {
        EXPECT_THAT(device.Allocate(1 << 20, "x"),
                    StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr("1048576 bytes of 'x' on cuda:0")));
        return absl::OkStatus();
      },
      {.machine = {.memory_bytes_per_gpu = 1 << 16}}));
}

TEST(CudaDeviceTest, WhatIsFreedWhileItIsUsedIsFound) {
  EXPECT_THAT(
      OnOneGpu([](CudaDevice& device) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto fills, device.NewStream("fills"));
        TESSERA_ASSIGN_OR_RETURN(const auto frees, device.NewStream("frees"));
        TESSERA_ASSIGN_OR_RETURN(Buffer x, device.Allocate(40, "x"));
        TESSERA_RETURN_IF_ERROR(device.kernels().Fill(*fills, Floats(x), 1.0));
        x.ResetAfter(*frees);
        return fills->Synchronize();
      }),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("free #2"), HasSubstr("not ordered"))));
}

TEST(CudaDeviceTest, TakesMemoryFromTheCallersAllocator) {
  class Counting final : public CudaAllocator {
   public:
    void* Allocate(int64_t bytes, void* stream) override {
      named_streams += stream != nullptr;
      allocated += bytes;
      void* data = nullptr;
      cudaMallocAsync(&data, bytes, Order(stream));
      cudaStreamSynchronize(Order(stream));
      return data;
    }
    void Free(void* data, int64_t bytes, void* stream) override {
      freed += bytes;
      cudaFreeAsync(data, Order(stream));
    }
    cudaStream_t Order(void* stream) {
      if (stream != nullptr) return static_cast<cudaStream_t>(stream);
      if (own == nullptr) cudaStreamCreateWithFlags(&own, 0);
      return own;
    }

    int64_t allocated = 0;
    int64_t freed = 0;
    int named_streams = 0;
    cudaStream_t own = nullptr;
  };
  Counting allocator;
  EXPECT_OK(OnOneGpu(
      [&](CudaDevice& device) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
        TESSERA_ASSIGN_OR_RETURN(Buffer x,
                                 device.Allocate(24, "x", stream.get()));
        TESSERA_ASSIGN_OR_RETURN(const Buffer y, device.Allocate(8, "y"));
        x.ResetAfter(*stream);
        return stream->Synchronize();
      },
      {.device = {.allocator = &allocator}}));
  EXPECT_EQ(allocator.allocated, 32);
  EXPECT_EQ(allocator.freed, 32);
  EXPECT_EQ(allocator.named_streams, 1);
}

TEST(CudaDeviceTest, KeepsPinnedMemoryForTheNext) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    void* first = nullptr;
    {
      TESSERA_ASSIGN_OR_RETURN(const HostMemory x, device.AllocateHost(64));
      first = x.data();
    }
    TESSERA_ASSIGN_OR_RETURN(const HostMemory y, device.AllocateHost(64));
    EXPECT_EQ(y.data(), first);
    TESSERA_ASSIGN_OR_RETURN(const HostMemory z, device.AllocateHost(64));
    EXPECT_NE(z.data(), first);
    return absl::OkStatus();
  }));
}

TEST(CudaDeviceTest, TellsAScalarWhenItIsAskedFor) {
  EXPECT_OK(OnOneGpu([](CudaDevice& device) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream, device.NewStream("s"));
    TESSERA_ASSIGN_OR_RETURN(HostScalar scalar,
                             HostScalar::Create(*stream, "scalar"));
    TESSERA_RETURN_IF_ERROR(
        device.kernels().Fill(*stream, scalar.view(), 42.0));
    TESSERA_RETURN_IF_ERROR(scalar.Request());
    EXPECT_THAT(scalar.Value(), IsOkAndHolds(42.0));
    return absl::OkStatus();
  }));
}

// Failures.

absl::Status FillAndCopy(const TensorView& x, void* host, Stream& fills,
                         Stream& copies) {
  Kernels& kernels = fills.device().kernels();
  TESSERA_RETURN_IF_ERROR(kernels.Fill(fills, x, 2.5));
  TESSERA_RETURN_IF_ERROR(copies.Wait(fills.Record()));
  return kernels.CopyToHost(copies, host, x);
}

// What a program does with a device, in small.
absl::Status UseDevice(CudaDevice& device) {
  TESSERA_ASSIGN_OR_RETURN(const auto fills, device.NewStream("fills"));
  TESSERA_ASSIGN_OR_RETURN(const auto copies, device.NewStream("copies"));
  TESSERA_ASSIGN_OR_RETURN(const Buffer y, device.Allocate(8, "y"));
  TESSERA_ASSIGN_OR_RETURN(const HostMemory host, device.AllocateHost(40));
  TESSERA_ASSIGN_OR_RETURN(Buffer x, device.Allocate(40, "x", fills.get()));
  absl::Status status = FillAndCopy(Floats(x), host.data(), *fills, *copies);
  status.Update(fills->Synchronize());
  status.Update(copies->Synchronize());
  x.ResetAfter(*copies);
  return status;
}

TEST(CudaDeviceTest, EveryCallThatFailsIsAnError) {
  GpuReport whole;
  ASSERT_OK(OnOneGpu(UseDevice, {}, &whole));
  ASSERT_GT(whole.calls[0], 15);
  int64_t errors = 0;
  for (int64_t call = 0; call < whole.calls[0]; ++call) {
    GpuReport report;
    const absl::Status status = OnOneGpu(
        UseDevice, {.machine = {.failing_call = Machine::FailingCall{0, call}}},
        &report);
    // Nobody is told where looking at a stream fails that is destroyed.
    if (status.ok()) continue;
    ++errors;
    EXPECT_THAT(status, AnyOf(StatusIs(absl::StatusCode::kInternal,
                                       AllOf(HasSubstr("cuda: want"),
                                             HasSubstr("cudaErrorUnknown"))),
                              StatusIs(absl::StatusCode::kResourceExhausted)))
        << "call " << call;
  }
  EXPECT_GT(errors, whole.calls[0] - 8);
}

}  // namespace
}  // namespace tessera::emulation
