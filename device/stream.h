#ifndef TESSERA_DEVICE_STREAM_H_
#define TESSERA_DEVICE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/inline_function.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

class Device;

// Memory that an operation reads or writes.
struct MemoryRange {
  MemoryRange() = default;
  MemoryRange(const void* begin_in, int64_t bytes_in)
      : begin(begin_in), bytes(bytes_in) {}
  // From the first to the last element of a view, gaps included.
  MemoryRange(const TensorView& view)  // NOLINT(google-explicit-constructor)
      : begin(view.data()), bytes(view.SpanBytes()) {}

  const void* begin = nullptr;
  int64_t bytes = 0;
};

// What a launch does, for devices that simulate, check or trace it. Spans need
// live only as long as the call.
struct LaunchDescriptor {
  absl::string_view name;
  absl::Span<const MemoryRange> reads = {};
  absl::Span<const MemoryRange> writes = {};
  int64_t bytes = 0;  // moved to and from memory
  int64_t flops = 0;
  // Of a collective: the name of its communicator.
  absl::string_view communicator = {};
};

// The work of a launch. On a CPU it is the work itself and runs when the
// stream comes to it; on a GPU it runs at once and enqueues kernels on
// Stream::native_handle(). A body that captures up to kLaunchBytes (two views
// and a few numbers) allocates nothing.
inline constexpr size_t kLaunchBytes = 240;
using LaunchBody = InlineFunction<absl::Status(), kLaunchBytes>;

// A point in the order of one stream. A cheap handle; copies mean the same
// point. Default-made, it has passed already. Thread-safe.
class Event {
 public:
  // What a backend keeps for the events of a stream, or for one of them.
  class State {
   public:
    virtual ~State() = default;
    // As Event::Synchronize.
    virtual absl::Status Synchronize(int64_t point) = 0;
    // Of a stream that waits for an event of another one just now: the state
    // of that event, as long as it has not passed. Else null.
    virtual std::shared_ptr<State> Awaited() const { return nullptr; }
    // True once the stream has come to this point.
    virtual bool HasPassed(int64_t /*point*/) const { return true; }
  };

  Event() = default;
  // `point` tells events of one state apart.
  explicit Event(std::shared_ptr<State> state, int64_t point = 0)
      : state_(std::move(state)), point_(point) {}

  // Blocks the calling thread until the stream has come to this point.
  // Returns the stream's error, if it had failed by then.
  absl::Status Synchronize() const {
    return state_ == nullptr ? absl::OkStatus() : state_->Synchronize(point_);
  }

  const std::shared_ptr<State>& state() const { return state_; }
  int64_t point() const { return point_; }

 private:
  std::shared_ptr<State> state_;
  int64_t point_ = 0;
};

// Operations that run one after the other, in the order in which they were
// enqueued; several streams run side by side. The first error of an operation
// is sticky: what comes behind it is not run, and Launch, Wait, Synchronize
// and status return it from then on. Events recorded on a failed stream pass,
// and hand its error on to the streams that wait for them.
//
// Calls may come from any thread, one at a time. Destruction waits for what
// is enqueued.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const std::string& name() const { return name_; }
  Device& device() const { return device_; }
  // cudaStream_t on a CUDA device, null on a CPU.
  virtual void* native_handle() const { return nullptr; }

  // Enqueues `body`. A body that is dropped because the stream failed is
  // destroyed without having run.
  virtual absl::Status Launch(const LaunchDescriptor& descriptor,
                              LaunchBody body) = 0;
  // The point behind everything enqueued so far.
  virtual Event Record() = 0;
  // What is enqueued from now on starts after `event`. The host does not wait,
  // save on an inline stream, where the host is the stream.
  virtual absl::Status Wait(const Event& event) = 0;
  // Blocks until everything enqueued is done.
  virtual absl::Status Synchronize() = 0;
  // The sticky error known by now, without waiting.
  virtual absl::Status status() const = 0;
  // What the events of a stream share whose operations run on a thread of its
  // own: it tells such streams apart. Null on others.
  virtual std::shared_ptr<Event::State> progress() const { return nullptr; }

  // In traces, what is enqueued from here to the matching EndRange belongs
  // together: "gather", "block0". Ranges nest. No effect otherwise.
  virtual void BeginRange(absl::string_view /*action*/,
                          absl::string_view /*subject*/) {}
  virtual void EndRange() {}

 protected:
  Stream(Device& device, absl::string_view name)
      : device_(device), name_(name) {}

 private:
  Device& device_;
  std::string name_;
};

// A range of what is enqueued while it is in scope.
class StreamRange {
 public:
  // LIFETIME: borrows the stream.
  StreamRange(Stream& stream, absl::string_view action,
              absl::string_view subject)
      : stream_(stream) {
    stream_.BeginRange(action, subject);
  }
  ~StreamRange() { stream_.EndRange(); }
  StreamRange(const StreamRange&) = delete;
  StreamRange& operator=(const StreamRange&) = delete;

 private:
  Stream& stream_;
};

}  // namespace tessera

#endif  // TESSERA_DEVICE_STREAM_H_
