#include "tests/emulation/machine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/emulation/nccl_network.h"

namespace tessera::emulation {
namespace {

using internal::Touched;

Machine* current_machine = nullptr;

}  // namespace

Machine::Machine(testing::Scheduler& scheduler,
                 std::deque<testing::RaceDetector>& detectors,
                 const Options& options)
    : scheduler_(scheduler),
      detectors_(detectors),
      options_(options),
      nccl_(std::make_unique<NcclNetwork>(*this)) {
  for (size_t gpu = 0; gpu < detectors.size(); ++gpu) {
    gpus_.push_back({.memory = std::make_unique<DeviceMemory>(
                         options.memory_bytes_per_gpu)});
  }
  current_machine = this;
}

Machine::~Machine() { current_machine = nullptr; }

Machine* Machine::current() { return current_machine; }

bool Machine::Fails(int gpu) {
  const int64_t call = gpus_[gpu].calls++;
  const std::optional<FailingCall>& failing = options_.failing_call;
  return failing.has_value() && failing->gpu == gpu && failing->call == call;
}

cudaStream_t Machine::NewStream(int gpu, int priority) {
  const std::string name = absl::StrCat(streams_.size());
  streams_.push_back(
      {.gpu = gpu,
       .queue =
           scheduler_.AddQueue(absl::StrCat("stream ", name, " of cuda:", gpu)),
       .number = detectors_[gpu].AddStream(absl::StrCat("stream ", name)),
       .priority = priority});
  return &streams_.back();
}

cudaEvent_t Machine::NewEvent(int gpu) {
  events_.push_back({.gpu = gpu});
  return &events_.back();
}

bool Machine::IsAlive(cudaStream_t stream, absl::string_view use) {
  if (!stream->destroyed) return true;
  Report(stream->gpu, absl::StrCat(use, " on a stream that is destroyed"));
  return false;
}

// Operations.

cudaError_t Machine::Enqueue(cudaStream_t stream, Operation operation) {
  std::vector<MemoryRange> reads;
  std::vector<MemoryRange> writes;
  for (const Touched& touched : operation.touched) {
    (touched.is_written ? writes : reads)
        .emplace_back(touched.begin, static_cast<int64_t>(touched.bytes));
  }
  detectors_[stream->gpu].Launch(stream->number, operation.name, reads, writes);
  return EnqueueUnseen(stream, std::move(operation));
}

cudaError_t Machine::EnqueueUnseen(cudaStream_t stream, Operation operation) {
  if (!IsAlive(stream, operation.name)) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    return Capture(stream, std::move(operation.work));
  }
  scheduler_.Push(
      stream->queue,
      {.name = std::string(operation.name),
       .ready = std::move(operation.ready),
       .run = [this, gpu = stream->gpu, work = std::move(operation.work)] {
         if (work == nullptr || !scheduler_.failure().ok()) return;
         OpenMemory(gpu);
         work();
       }});
  gpus_[CurrentGpu()].seen = -1;
  Yield();
  return cudaSuccess;
}

void Machine::OpenMemory(int gpu) { opened_.try_emplace(gpu, memory(gpu)); }

void Machine::CloseMemory() {
  if (!scheduler_.in_operation()) opened_.clear();
}

// Turns.

void Machine::Enter(int host) {
  scheduler_.Enter(host);
  CloseMemory();
}

void Machine::Yield() {
  scheduler_.Yield();
  CloseMemory();
}

absl::Status Machine::BlockUntil(std::function<bool()> condition,
                                 std::string what) {
  const absl::Status status =
      scheduler_.BlockUntil(std::move(condition), std::move(what));
  CloseMemory();
  return status;
}

// Captures.

CUgraph_st* Machine::OpenCapture(uint64_t id) {
  for (const auto& capture : captures_) {
    if (capture->id == id) return capture.get();
  }
  return nullptr;
}

cudaError_t Machine::BeginCapture(cudaStream_t stream) {
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  captures_.push_back(
      std::make_unique<CUgraph_st>(CUgraph_st{++last_capture_, stream}));
  stream->capture = captures_.back().get();
  stream->capture->clocks[stream->queue];
  return cudaSuccess;
}

cudaError_t Machine::Capture(cudaStream_t stream, std::function<void()> work) {
  stream->capture->clocks[stream->queue].Advance(stream->queue);
  if (work != nullptr) stream->capture->work.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t Machine::WaitInCapture(cudaStream_t stream,
                                   const CUevent_st& event) {
  if (event.capture == 0) return cudaErrorStreamCaptureIsolation;
  CUgraph_st* const capture = OpenCapture(event.capture);
  if (capture == nullptr) return cudaErrorCapturedEvent;
  if (stream->capture != nullptr && stream->capture != capture) {
    return cudaErrorStreamCaptureMerge;
  }
  stream->capture = capture;
  capture->clocks[stream->queue].Join(event.clock);
  return cudaSuccess;
}

cudaError_t Machine::EndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUgraph_st* const capture = stream->capture;
  if (capture == nullptr || capture->origin != stream) {
    return cudaErrorStreamCaptureUnmatched;
  }
  bool is_joined = true;
  for (CUstream_st& other : streams_) {
    if (other.capture != capture) continue;
    is_joined &=
        capture->clocks[stream->queue].Covers(capture->clocks[other.queue]);
    other.capture = nullptr;
  }
  *graph = new CUgraph_st(*capture);
  std::erase_if(captures_,
                [&](const auto& open) { return open.get() == capture; });
  return is_joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

cudaError_t Machine::LaunchGraph(const CUgraph_st& graph, cudaStream_t stream) {
  return EnqueueUnseen(stream, {.name = "graph", .work = [work = graph.work] {
                                  for (const auto& one : work) one();
                                }});
}

void Machine::FreeMemoryOf(const CUgraph_st& graph) {
  for (void* data : graph.freed) memory(graph.origin->gpu).Free(data);
}

// Events.

cudaError_t Machine::Record(cudaEvent_t event, cudaStream_t stream) {
  if (!IsAlive(stream, "cudaEventRecord")) {
    return cudaErrorInvalidResourceHandle;
  }
  event->stream = stream;
  event->position = scheduler_.pushed(stream->queue);
  event->point = detectors_[stream->gpu].Record(stream->number);
  event->capture = stream->capture == nullptr ? 0 : stream->capture->id;
  if (event->capture != 0) {
    event->clock = stream->capture->clocks[stream->queue];
  }
  return cudaSuccess;
}

bool Machine::HasPassed(const CUevent_st& event) const {
  return event.stream == nullptr ||
         scheduler_.done(event.stream->queue) >= event.position;
}

cudaError_t Machine::Wait(cudaStream_t stream, cudaEvent_t event) {
  const bool is_recorded = event->stream != nullptr;
  if (is_recorded && event->gpu != stream->gpu) {
    Report(stream->gpu, "a stream waits for an event of another GPU");
  }
  if (!detectors_[stream->gpu].Wait(stream->number,
                                    is_recorded ? &*event->point : nullptr) ||
      !is_recorded) {
    return cudaSuccess;
  }
  if (stream->capture != nullptr || event->capture != 0) {
    return WaitInCapture(stream, *event);
  }
  // As it is now: it may be recorded again.
  return EnqueueUnseen(stream, {.name = "wait", .ready = [this, now = *event] {
                                  return HasPassed(now);
                                }});
}

void Machine::Poll(const std::function<bool()>& done, absl::string_view what) {
  int64_t& seen = gpus_[CurrentGpu()].seen;
  if (options_.time_passes || std::exchange(seen, progress_) != progress_) {
    return Yield();
  }
  BlockUntil([&] { return done() || progress_ != seen; }, std::string(what))
      .IgnoreError();  // is in the scheduler
}

cudaError_t Machine::Query(const CUevent_st& event) {
  if (event.capture != 0) return cudaErrorCapturedEvent;
  if (!HasPassed(event)) {
    Poll([&] { return HasPassed(event); }, "polls for what a stream does");
  }
  if (!scheduler_.failure().ok()) return cudaErrorLaunchTimeout;
  return HasPassed(event) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t Machine::Synchronize(const CUevent_st& event) {
  if (event.capture != 0) return cudaErrorCapturedEvent;
  BlockUntil([&] { return HasPassed(event); }, "waits for a stream")
      .IgnoreError();  // is in the scheduler
  if (event.point.has_value()) {
    detectors_[event.gpu].SynchronizeHost(*event.point);
  }
  return scheduler_.failure().ok() ? cudaSuccess : cudaErrorLaunchTimeout;
}

// Memory.

cudaError_t Machine::Allocate(int gpu, int64_t bytes, cudaStream_t stream,
                              void** data) {
  *data = memory(gpu).Allocate(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  detectors_[gpu].Allocate(*data, bytes, absl::StrCat(bytes, " bytes"));
  if (stream == nullptr) return cudaSuccess;
  const Touched writes = {*data, static_cast<size_t>(bytes), true};
  return Enqueue(stream, {.name = "allocate",
                          .touched = {&writes, 1},
                          .work = [&memory = memory(gpu), data = *data] {
                            memory.Poison(data);
                          }});
}

cudaError_t Machine::Free(void* data, cudaStream_t stream) {
  DeviceMemory& memory = this->memory(stream->gpu);
  detectors_[stream->gpu].FreeOnStream(data, stream->number);
  if (memory.BytesAt(data) < 0) return cudaErrorInvalidValue;
  scheduler_.Push(stream->queue, {.name = "free", .run = [&memory, data] {
                                    if (memory.BytesAt(data) >= 0)
                                      memory.Free(data);
                                  }});
  Yield();
  return cudaSuccess;
}

void Machine::Report(int gpu, absl::string_view problem) {
  detectors_[gpu].Report(problem);
}

void Machine::CheckMemory() {
  for (int gpu = 0; gpu < num_gpus(); ++gpu) {
    for (const auto& problem : memory(gpu).Damage()) Report(gpu, problem);
    for (const auto& problem : memory(gpu).Leaks()) Report(gpu, problem);
  }
}

}  // namespace tessera::emulation
