#include "tessera/device/cuda/nvtx_domain.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

NvtxDomain::NvtxDomain() : domain_(nvtxDomainCreateA("tessera")) {}

NvtxDomain::~NvtxDomain() {
  if (domain_ != nullptr) nvtxDomainDestroy(domain_);
}

void NvtxDomain::NameStream(cudaStream_t stream, absl::string_view name) const {
  if (domain_ == nullptr) return;
  nvtxNameCudaStreamA(stream, std::string(name).c_str());
}

void NvtxDomain::Push(absl::string_view action,
                      absl::string_view subject) const {
  if (domain_ == nullptr) return;
  const std::string text = subject.empty() ? std::string(action)
                                           : absl::StrCat(action, " ", subject);
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  nvtxDomainRangePushEx(domain_, &attributes);
}

void NvtxDomain::Pop() const {
  if (domain_ != nullptr) nvtxDomainRangePop(domain_);
}

}  // namespace tessera::internal
