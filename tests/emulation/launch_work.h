#ifndef TESSERA_TESTS_EMULATION_LAUNCH_WORK_H_
#define TESSERA_TESTS_EMULATION_LAUNCH_WORK_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tessera/device/cuda/cuda_status.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/cuda/launch.h"
#include "tessera/device/stream.h"

namespace tessera::emulation {

// Enqueues what a trainer computes on the host, as if it were a kernel: `body`
// runs where the emulated stream comes to it, and may touch memory of the GPU.
// The stream fails with its error.
inline absl::Status LaunchWork(Stream& stream,
                               const LaunchDescriptor& descriptor,
                               LaunchBody body) {
  std::vector<internal::Touched> touched;
  for (const MemoryRange& range : descriptor.reads) {
    touched.push_back({range.begin, static_cast<size_t>(range.bytes), false});
  }
  for (const MemoryRange& range : descriptor.writes) {
    touched.push_back({range.begin, static_cast<size_t>(range.bytes), true});
  }
  const auto work = std::make_shared<LaunchBody>(std::move(body));
  return stream.Launch(descriptor, [&] {
    return internal::CudaStatus(
        internal::LaunchOnHost(
            {static_cast<cudaStream_t>(stream.native_handle()), "work",
             touched.data(), static_cast<int>(touched.size())},
            [work, &stream] {
              static_cast<internal::CudaStream&>(stream).Fail((*work)());
            }),
        "work");
  });
}

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_LAUNCH_WORK_H_
