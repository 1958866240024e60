#ifndef TESSERA_DEVICE_CPU_CPU_STREAM_H_
#define TESSERA_DEVICE_CPU_CPU_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cpu/cpu_tracer.h"
#include "tessera/device/stream.h"

namespace tessera::internal {

// A stream of host work. Bodies, run or dropped, are destroyed in stream
// order and under no lock, so that their destructors may do work. `tracer`
// records what is run; null: nobody does. LIFETIME: borrows it.
// ERRORS: ResourceExhausted where the system has no thread for a worker.
absl::StatusOr<std::unique_ptr<Stream>> NewCpuStream(CpuStreams kind,
                                                     Device& device,
                                                     absl::string_view name,
                                                     CpuTracer* tracer);

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CPU_CPU_STREAM_H_
