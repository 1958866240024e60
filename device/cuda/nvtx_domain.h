#ifndef TESSERA_DEVICE_CUDA_NVTX_DOMAIN_H_
#define TESSERA_DEVICE_CUDA_NVTX_DOMAIN_H_

#include <cuda_runtime_api.h>

#include "absl/strings/string_view.h"

struct nvtxDomainRegistration_st;

namespace tessera::internal {

// Ranges in the NVTX domain "tessera", for profilers. Costs nothing where none
// is attached. Ranges belong to the calling thread, and nest. Thread-safe.
class NvtxDomain {
 public:
  NvtxDomain();
  NvtxDomain(const NvtxDomain&) = delete;
  NvtxDomain& operator=(const NvtxDomain&) = delete;
  ~NvtxDomain();

  void NameStream(cudaStream_t stream, absl::string_view name) const;
  void Push(absl::string_view action, absl::string_view subject = {}) const;
  void Pop() const;

 private:
  nvtxDomainRegistration_st* const domain_;  // null: nobody listens
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CUDA_NVTX_DOMAIN_H_
