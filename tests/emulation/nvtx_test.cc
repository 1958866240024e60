// What a profiler is told by NVTX: this test is one.

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tests/emulation/run_emulated_gpus.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::testing::ElementsAre;

// Of the domain "tessera", which is 1; other domains are 0.
std::vector<std::string>& Told() {
  static auto* const told = new std::vector<std::string>;
  return *told;
}

nvtxDomainHandle_t CreateDomain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(
      std::string(name) == "tessera" ? uintptr_t{1} : 0);
}

int Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  if (domain != nullptr && attributes->version == NVTX_VERSION &&
      attributes->messageType == NVTX_MESSAGE_TYPE_ASCII) {
    Told().push_back(absl::StrCat("begin ", attributes->message.ascii));
  }
  return 0;
}

int Pop(nvtxDomainHandle_t domain) {
  if (domain != nullptr) Told().emplace_back("end");
  return 0;
}

void NameStream(cudaStream_t, const char* name) {
  Told().push_back(absl::StrCat("stream ", name));
}

template <typename Function>
void Listen(NvtxFunctionTable table, int callback, Function* function) {
  *table[callback] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int StartListening(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size);
  Listen(table, NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  Listen(table, NVTX_CBID_CORE2_DomainRangePushEx, Push);
  Listen(table, NVTX_CBID_CORE2_DomainRangePop, Pop);
  callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDART, &table, &size);
  Listen(table, NVTX_CBID_CUDART_NameCudaStreamA, NameStream);
  return 1;
}

TEST(NvtxTest, RangesAndLaunchesNestAndStreamsHaveNames) {
  // Where NVTX looks on its first use.
  InitializeInjectionNvtx2_fnptr = StartListening;
  EXPECT_OK(RunEmulatedGpus(1, [](GpuRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto stream,
                             rank.device.NewStream("compute"));
    EXPECT_THAT(Told(), ElementsAre("stream compute"));
    Told().clear();
    TESSERA_ASSIGN_OR_RETURN(Buffer x,
                             rank.device.Allocate(64, "x", stream.get()));
    {
      const StreamRange range(*stream, "gather", "block0");
      TESSERA_RETURN_IF_ERROR(rank.device.kernels().Fill(
          *stream, TensorView::Flat(x.data(), DType::kF32, 16), 1.0));
    }
    EXPECT_THAT(Told(),
                ElementsAre("begin gather block0", "begin fill", "end", "end"));
    x.ResetAfter(*stream);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tessera::emulation
