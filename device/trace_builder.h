#ifndef TESSERA_DEVICE_TRACE_BUILDER_H_
#define TESSERA_DEVICE_TRACE_BUILDER_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "tessera/device/trace.h"

namespace tessera::internal {

// Puts together what the streams of a device do. Not thread-safe.
class TraceBuilder {
 public:
  // The index of a new stream.
  int AddStream(absl::string_view name);

  // What is added to the stream from now on is of a range called "action
  // subject", inside the one that is open there. EndRange ends the innermost
  // one; none open is legal.
  void BeginRange(int stream, absl::string_view action,
                  absl::string_view subject);
  void EndRange(int stream);

  // An operation, in the order in which they are enqueued. Returns its number.
  int64_t AddOperation(int stream, absl::string_view name,
                       absl::string_view communicator);
  // When it ran. No effect where it was cleared meanwhile.
  void SetTimes(int64_t number, int64_t begin_ps, int64_t end_ps);

  // Forgets all but streams and the ranges that are open.
  void Clear(int64_t begin_ps);

  // What was added, without memory.
  const Trace& trace() const { return trace_; }

 private:
  Trace trace_;
  std::vector<int> open_ranges_;  // by stream: the innermost, or -1
  int64_t first_ = 0;             // the number of trace_.operations[0]
};

}  // namespace tessera::internal

#endif  // TESSERA_DEVICE_TRACE_BUILDER_H_
