#ifndef TESSERA_TESTS_EMULATION_NCCL_CALL_H_
#define TESSERA_TESTS_EMULATION_NCCL_CALL_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tessera/device/cuda/launch.h"

namespace tessera::emulation {

enum class NcclFunction {
  kAllReduce,
  kReduceScatter,
  kReduce,
  kAllGather,
  kBroadcast,
  kSend,
  kRecv
};

// A call of one rank. `count` is NCCL's: of each rank's piece where there are
// pieces.
struct NcclCall {
  NcclFunction function;
  const void* send;
  void* recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // or root
  ncclComm_t comm;
  cudaStream_t stream;
};

// "ncclAllReduce"
absl::string_view NameOf(NcclFunction function);

bool IsMessage(const NcclCall& call);

// What ranks must agree on, in words.
std::string Signature(const NcclCall& call);

// What a call reads, then what it writes; without bytes where it does not.
std::pair<internal::Touched, internal::Touched> MemoryOf(const NcclCall& call);

// Where what other ranks reach into lies in a window of the call's rank; -1: in
// none, or they reach into nothing.
int64_t ReachedPlace(const NcclCall& call);

// Does what they do together: those of all ranks, or of sender and receiver.
// REQUIRES: one signature; all memory is open.
void RunTogether(const std::vector<NcclCall>& calls);

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_NCCL_CALL_H_
