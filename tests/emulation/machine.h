#ifndef TESSERA_TESTS_EMULATION_MACHINE_H_
#define TESSERA_TESTS_EMULATION_MACHINE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/device/cuda/launch.h"
#include "tessera/testing/race_detector.h"
#include "tessera/testing/scheduler.h"
#include "tessera/testing/stream_order.h"
#include "tests/emulation/device_memory.h"

// What the functions of the CUDA runtime and NCCL that stand in for the real
// ones work on. The types that the real headers leave open are these.

// What is captured: work in an order in which it may be done.
struct CUgraph_st {
  uint64_t id;
  cudaStream_t origin;
  std::vector<std::function<void()>> work = {};
  // Memory that the graph frees; kept for the next launch.
  std::vector<void*> freed = {};
  // By queue: how far each stream of the capture has come.
  std::map<int, tessera::testing::VectorClock> clocks = {};
};

struct CUgraphExec_st {
  CUgraph_st graph;
};

// A stream: a queue of the scheduler.
struct CUstream_st {
  int gpu;
  int queue;   // in the scheduler
  int number;  // in the GPU's race detector
  int priority = 0;
  bool destroyed = false;
  CUgraph_st* capture = nullptr;  // that it is in
};

// A point in a stream; the last one that was recorded.
struct CUevent_st {
  int gpu;
  bool destroyed = false;
  cudaStream_t stream = nullptr;  // null: never recorded
  int64_t position = 0;           // operations in front of it
  std::optional<tessera::testing::StreamOrder::Point> point = std::nullopt;
  // Where it was recorded in a capture: which one, and how far that was.
  uint64_t capture = 0;
  tessera::testing::VectorClock clock = {};
};

struct CUmemPoolHandle_st {
  int gpu;
};

namespace tessera::emulation {

class NcclNetwork;

// GPUs that are emulated: their streams are queues of a scheduler, which runs
// one thing at a time, their memory is the host's. The host's threads are the
// scheduler's hosts.
class Machine {
 public:
  // A call of CUDA or NCCL on one GPU's behalf that fails.
  struct FailingCall {
    int gpu = 0;
    int64_t call = 0;  // counts the calls that may fail, from 0
  };

  struct Options {
    int64_t memory_bytes_per_gpu = int64_t{1} << 30;
    std::optional<FailingCall> failing_call = std::nullopt;
    // Hosts that look at something again and again may do so for ever: time
    // will tell them to stop. Else to look in vain means to be stuck.
    bool time_passes = false;
  };

  // LIFETIME: borrows both; detectors are by GPU.
  Machine(testing::Scheduler& scheduler,
          std::deque<testing::RaceDetector>& detectors, const Options& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The one that there is now: CUDA has no other way to be told. Null: the
  // process has no GPU.
  static Machine* current();

  int num_gpus() const { return static_cast<int>(gpus_.size()); }
  testing::Scheduler& scheduler() { return scheduler_; }
  // As the scheduler's. Hosts come back with all memory closed.
  void Enter(int host);
  void Yield();
  absl::Status BlockUntil(std::function<bool()> condition, std::string what);
  testing::RaceDetector& detector(int gpu) { return detectors_[gpu]; }
  DeviceMemory& memory(int gpu) { return *gpus_[gpu].memory; }
  NcclNetwork& nccl() { return *nccl_; }

  // Whether the call that a thread makes now on behalf of `gpu` is the one to
  // fail. Counts it.
  bool Fails(int gpu);
  int64_t calls(int gpu) const { return gpus_[gpu].calls; }

  // Streams and events; never freed, so that late uses are found.
  cudaStream_t NewStream(int gpu, int priority);
  cudaEvent_t NewEvent(int gpu);

  // What a stream does in its order: `work`, once `ready` holds (null: at
  // once), with its GPU's memory open. Others may go first.
  struct Operation {
    absl::string_view name;
    absl::Span<const internal::Touched> touched = {};
    std::function<bool()> ready = nullptr;
    std::function<void()> work = nullptr;
  };
  cudaError_t Enqueue(cudaStream_t stream, Operation operation);
  // The same without an entry in the race detector's books.
  cudaError_t EnqueueUnseen(cudaStream_t stream, Operation operation);

  // Of a GPU, until a host goes on. Called by operations.
  void OpenMemory(int gpu);

  cudaError_t Record(cudaEvent_t event, cudaStream_t stream);
  cudaError_t Wait(cudaStream_t stream, cudaEvent_t event);
  // Whether the event has passed; where not, others may go first. To look is
  // not to wait: what the host enqueues afterwards is not in order behind it.
  cudaError_t Query(const CUevent_st& event);
  cudaError_t Synchronize(const CUevent_st& event);

  // A host looks whether `done`, which nothing but what others do can change:
  // lets them do it. Where nobody can, all are stuck, but for the first look
  // after the host has enqueued something: it may help itself then. `what` is
  // what it does.
  void Poll(const std::function<bool()>& done, absl::string_view what);
  // Somebody has done something that those who poll may find, whether what they
  // wait for is done or not.
  void MakeProgress() { ++progress_; }

  // What is given to `stream`, and to those that wait for it, is not done but
  // kept, until the capture ends.
  cudaError_t BeginCapture(cudaStream_t stream);
  cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph);
  cudaError_t LaunchGraph(const CUgraph_st& graph, cudaStream_t stream);
  void FreeMemoryOf(const CUgraph_st& graph);

  cudaError_t Allocate(int gpu, int64_t bytes, cudaStream_t stream,
                       void** data);
  cudaError_t Free(void* data, cudaStream_t stream);

  // Something that no program should do.
  void Report(int gpu, absl::string_view problem);
  // Looks at memory: what was written that should not be, and what was not
  // freed. Called once, when all programs have ended.
  void CheckMemory();

 private:
  struct Gpu {
    std::unique_ptr<DeviceMemory> memory;
    int64_t calls = 0;
    int64_t seen = -1;  // of the progress, when its host last polled
  };

  bool HasPassed(const CUevent_st& event) const;
  // Of the capture with this id, where it has not ended; else null.
  CUgraph_st* OpenCapture(uint64_t id);
  // Keeps the work for the graph.
  cudaError_t Capture(cudaStream_t stream, std::function<void()> work);
  // Where one of both is captured.
  cudaError_t WaitInCapture(cudaStream_t stream, const CUevent_st& event);
  void CloseMemory();
  // OK for one that is not destroyed; else a report.
  bool IsAlive(cudaStream_t stream, absl::string_view use);

  testing::Scheduler& scheduler_;
  std::deque<testing::RaceDetector>& detectors_;
  const Options options_;
  std::vector<Gpu> gpus_;
  std::map<int, DeviceMemory::Opened> opened_;  // by GPU
  std::deque<CUstream_st> streams_;
  std::deque<CUevent_st> events_;
  std::vector<std::unique_ptr<CUgraph_st>> captures_;  // that have not ended
  uint64_t last_capture_ = 0;
  int64_t progress_ = 0;
  std::unique_ptr<NcclNetwork> nccl_;
};

// The calling thread's device, as cudaSetDevice set it.
int CurrentGpu();

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_MACHINE_H_
