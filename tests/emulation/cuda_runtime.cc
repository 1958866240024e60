// The functions of the CUDA runtime that Tessera calls, on emulated GPUs: they
// are linked in place of libcudart.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "tests/emulation/machine.h"

namespace tessera::emulation {
namespace {

thread_local int current_gpu = 0;
thread_local cudaError_t last_error = cudaSuccess;

// Keeps it for cudaGetLastError.
cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

Machine& machine() { return *Machine::current(); }

// Whether the call that is being made fails.
bool Fails() { return machine().Fails(current_gpu); }

// The error of calls that fail, other than those for memory.
constexpr cudaError_t kInjected = cudaErrorUnknown;

}  // namespace

int CurrentGpu() { return current_gpu; }

}  // namespace tessera::emulation

namespace tessera::internal {

cudaError_t LaunchOnHost(const Grid& grid, std::function<void()> work) {
  using namespace tessera::emulation;  // NOLINT
  if (Fails()) return Return(kInjected);
  return Return(machine().Enqueue(
      grid.stream,
      {.name = grid.name,
       .touched = {grid.touched, static_cast<size_t>(grid.num_touched)},
       .work = std::move(work)}));
}

}  // namespace tessera::internal

using tessera::emulation::CurrentGpu;
using tessera::emulation::Fails;
using tessera::emulation::kInjected;
using tessera::emulation::Machine;
using tessera::emulation::machine;
using tessera::emulation::Return;

extern "C" {

// Devices.

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Machine::current() == nullptr ? 0 : machine().num_gpus();
  return Return(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  *device = CurrentGpu();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().num_gpus()) {
    return Return(cudaErrorInvalidDevice);
  }
  tessera::emulation::current_gpu = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  if (Fails()) return Return(kInjected);
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->totalGlobalMem = size_t{1} << 30;
  properties->multiProcessorCount = 1;
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  if (Fails()) return Return(kInjected);
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}

// Errors.

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchTimeout:
      return "cudaErrorLaunchTimeout";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchTimeout ? "nothing can go on"
                                         : "an emulated error";
}

cudaError_t cudaGetLastError() {
  return std::exchange(tessera::emulation::last_error, cudaSuccess);
}

// Streams and events.

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned,
                                         int priority) {
  if (Fails()) return Return(kInjected);
  *stream = machine().NewStream(CurrentGpu(), priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->destroyed = true;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (Fails()) return Return(kInjected);
  CUevent_st event = {.gpu = stream->gpu};
  machine().Record(&event, stream);
  return Return(machine().Synchronize(event));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (Fails()) return Return(kInjected);
  CUevent_st event = {.gpu = stream->gpu};
  machine().Record(&event, stream);
  return Return(machine().Query(event));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  if (Fails()) return Return(kInjected);
  return Return(machine().Wait(stream, event));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (Fails()) return Return(kInjected);
  *event = machine().NewEvent(CurrentGpu());
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  event->destroyed = true;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (Fails()) return Return(kInjected);
  return Return(machine().Record(event, stream));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (Fails()) return Return(kInjected);
  return Return(machine().Synchronize(*event));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (Fails()) return Return(kInjected);
  return Return(machine().Query(*event));
}

// Captures.

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id,  // NOLINT
                                     cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  const CUgraph_st* const capture = stream->capture;
  *status = capture == nullptr ? cudaStreamCaptureStatusNone
                               : cudaStreamCaptureStatusActive;
  if (capture != nullptr) *id = capture->id;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (Fails()) return Return(kInjected);
  return Return(machine().BeginCapture(stream));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (Fails()) return Return(kInjected);
  return Return(machine().EndCapture(stream, graph));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long) {  // NOLINT
  if (Fails()) return Return(kInjected);
  *exec = new CUgraphExec_st{*graph};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (Fails()) return Return(kInjected);
  return Return(machine().LaunchGraph(exec->graph, stream));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  machine().FreeMemoryOf(exec->graph);
  delete exec;
  return cudaSuccess;
}

// Memory.

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool,
                              const cudaMemPoolProps* properties) {
  if (Fails()) return Return(kInjected);
  *pool = new CUmemPoolHandle_st{.gpu = properties->location.id};
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return Fails() ? Return(kInjected) : cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes,
                                    cudaMemPool_t pool, cudaStream_t stream) {
  if (Fails()) return Return(cudaErrorMemoryAllocation);
  return Return(
      machine().Allocate(pool->gpu, static_cast<int64_t>(bytes), stream, data));
}

cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  if (Fails()) return Return(cudaErrorMemoryAllocation);
  return Return(machine().Allocate(stream->gpu, static_cast<int64_t>(bytes),
                                   stream, data));
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return Return(machine().Free(data, stream));
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  if (Fails()) return Return(cudaErrorMemoryAllocation);
  *data = std::malloc(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  if (Fails()) return Return(kInjected);
  if (dst == nullptr || src == nullptr) return Return(cudaErrorInvalidValue);
  const tessera::internal::Touched touched[] = {{src, bytes, false},
                                                {dst, bytes, true}};
  return Return(machine().Enqueue(
      stream, {.name = "memcpy", .touched = touched, .work = [=] {
                 std::memmove(dst, src, bytes);
               }}));
}

}  // extern "C"
