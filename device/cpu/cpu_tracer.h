#ifndef TESSERA_DEVICE_CPU_CPU_TRACER_H_
#define TESSERA_DEVICE_CPU_CPU_TRACER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"
#include "tessera/device/stream.h"
#include "tessera/device/trace.h"
#include "tessera/device/trace_builder.h"

namespace tessera::internal {

// Records what the streams of one CPU device run, and when. Thread-safe.
class CpuTracer {
 public:
  CpuTracer();

  int AddStream(absl::string_view name);
  void BeginRange(int stream, absl::string_view action,
                  absl::string_view subject);
  void EndRange(int stream);

  // A launch is enqueued. Returns the number that Run wants.
  int64_t Enqueue(int stream, const LaunchDescriptor& descriptor);
  // Runs what was enqueued with this number.
  absl::Status Run(int64_t number, absl::FunctionRef<absl::Status()> body);

  // Without what has not run.
  Trace trace() const;
  void Clear();

 private:
  mutable Mutex mutex_;
  TraceBuilder builder_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_CPU_CPU_TRACER_H_
