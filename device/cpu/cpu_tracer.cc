#include "tessera/device/cpu/cpu_tracer.h"

#include <algorithm>
#include <chrono>

namespace tessera::internal {
namespace {

// Of the clock that the processes of a host share, in a span of some 50 days:
// since a host was started, there may have been more picoseconds than fit.
int64_t NowPs() {
  constexpr int64_t kSpan = int64_t{1} << 52;  // nanoseconds
  const std::chrono::nanoseconds now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count() % kSpan * 1000;
}

}  // namespace

CpuTracer::CpuTracer() { builder_.Clear(NowPs()); }

int CpuTracer::AddStream(absl::string_view name) {
  MutexLock lock(mutex_);
  return builder_.AddStream(name);
}

void CpuTracer::BeginRange(int stream, absl::string_view action,
                           absl::string_view subject) {
  MutexLock lock(mutex_);
  builder_.BeginRange(stream, action, subject);
}

void CpuTracer::EndRange(int stream) {
  MutexLock lock(mutex_);
  builder_.EndRange(stream);
}

int64_t CpuTracer::Enqueue(int stream, const LaunchDescriptor& descriptor) {
  MutexLock lock(mutex_);
  return builder_.AddOperation(stream, descriptor.name,
                               descriptor.communicator);
}

absl::Status CpuTracer::Run(int64_t number,
                            absl::FunctionRef<absl::Status()> body) {
  const int64_t begin_ps = NowPs();
  absl::Status status = body();
  const int64_t end_ps = NowPs();
  MutexLock lock(mutex_);
  builder_.SetTimes(number, begin_ps, end_ps);
  return status;
}

Trace CpuTracer::trace() const {
  MutexLock lock(mutex_);
  Trace trace = builder_.trace();
  trace.operations.erase(
      std::remove_if(trace.operations.begin(), trace.operations.end(),
                     [](const TracedOperation& operation) {
                       return operation.end_ps == 0;
                     }),
      trace.operations.end());
  return trace;
}

void CpuTracer::Clear() {
  MutexLock lock(mutex_);
  builder_.Clear(NowPs());
}

}  // namespace tessera::internal
