// The functions of NCCL that Tessera calls, on emulated GPUs: they are linked
// in place of libnccl.

#include <nccl.h>

#include "tests/emulation/machine.h"
#include "tests/emulation/nccl_network.h"

namespace tessera::emulation {
namespace {

// The error of calls that fail on demand.
constexpr ncclResult_t kInjected = ncclSystemError;

NcclNetwork& network() { return Machine::current()->nccl(); }

bool Fails(int gpu) { return Machine::current()->Fails(gpu); }

ncclResult_t Add(NcclFunction function, const void* send, void* recv,
                 size_t count, ncclDataType_t type, ncclRedOp_t op, int peer,
                 ncclComm_t comm, cudaStream_t stream) {
  if (Fails(comm->gpu)) return kInjected;
  return network().Add(
      {function, send, recv, count, type, op, peer, comm, stream});
}

}  // namespace
}  // namespace tessera::emulation

using tessera::emulation::Add;
using tessera::emulation::CurrentGpu;
using tessera::emulation::Fails;
using tessera::emulation::kInjected;
using tessera::emulation::Machine;
using tessera::emulation::NcclFunction;
using tessera::emulation::network;

extern "C" {

// Errors.

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "an emulated error";
  }
}

const char* ncclGetLastError(ncclComm_t) { return "emulated"; }

// Communicators.

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (Fails(CurrentGpu())) return kInjected;
  *id = network().NewId();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (Fails(CurrentGpu())) return kInjected;
  return network().Init(comm, num_ranks, id, rank, CurrentGpu(), config);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int num_ranks, ncclUniqueId id,
                              int rank) {
  return ncclCommInitRankConfig(comm, num_ranks, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t* made, ncclConfig_t* config) {
  if (Fails(comm->gpu)) return kInjected;
  return network().Split(comm, color, key, made, config);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (Fails(comm->gpu)) return kInjected;
  return network().GetAsyncError(comm, error);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (Fails(comm->gpu)) return kInjected;
  *count = static_cast<int>(comm->clique->members.size());
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  if (Fails(comm->gpu)) return kInjected;
  *device = comm->gpu;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (Fails(comm->gpu)) return kInjected;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (Fails(comm->gpu)) return kInjected;
  return network().Finalize(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return network().Destroy(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) { return network().Abort(comm); }

ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  return network().Revoke(comm);
}

// Groups.

ncclResult_t ncclGroupStart() {
  return Fails(CurrentGpu()) ? kInjected : network().GroupStart();
}

ncclResult_t ncclGroupEnd() {
  if (!Fails(CurrentGpu())) return network().GroupEnd();
  network().DropGroup();
  return kInjected;
}

// Collectives.

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(NcclFunction::kAllReduce, send, recv, count, type, op, 0, comm,
             stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return Add(NcclFunction::kReduceScatter, send, recv, count, type, op, 0, comm,
             stream);
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return Add(NcclFunction::kReduce, send, recv, count, type, op, root, comm,
             stream);
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(NcclFunction::kAllGather, send, recv, count, type, ncclSum, 0,
             comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(NcclFunction::kBroadcast, send, recv, count, type, ncclSum, root,
             comm, stream);
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add(NcclFunction::kSend, send, nullptr, count, type, ncclSum, peer,
             comm, stream);
}

ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Add(NcclFunction::kRecv, nullptr, recv, count, type, ncclSum, peer,
             comm, stream);
}

// Memory.

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (Fails(CurrentGpu())) return kInjected;
  return Machine::current()->Allocate(CurrentGpu(), static_cast<int64_t>(bytes),
                                      nullptr, data) == cudaSuccess
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  Machine& machine = *Machine::current();
  network().CheckFree(data);
  for (int gpu = 0; gpu < machine.num_gpus(); ++gpu) {
    if (machine.memory(gpu).BytesAt(data) < 0) continue;
    machine.detector(gpu).FreeOnHost(data);
    machine.memory(gpu).Free(data);
    return ncclSuccess;
  }
  return ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t bytes,
                              void** handle) {
  if (Fails(comm->gpu)) return kInjected;
  return network().Register(comm, data, bytes, handle);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes,
                                    ncclWindow_t* window, int flags) {
  if (Fails(comm->gpu)) return kInjected;
  return network().RegisterWindow(comm, data, bytes, window, flags);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return network().Deregister(comm, window);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return network().Deregister(comm, handle);
}

}  // extern "C"
