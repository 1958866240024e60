#include "tessera/device/cpu/cpu_stream.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/mutex.h"
#include "tessera/base/ring_queue.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

// How far a stream has come. Its events share it, and may outlive the stream.
// Thread-safe.
class Progress final : public Event::State {
 public:
  // One more item is done.
  void Advance() {
    MutexLock lock(mutex_);
    ++done_;
    passed_.NotifyAll();
  }

  // The item that is being worked on has failed.
  void Fail(absl::Status error) {
    MutexLock lock(mutex_);
    if (!error_.ok()) return;
    error_ = std::move(error);
    failed_ = done_;
  }

  // Waits until `point` items are done.
  absl::Status Synchronize(int64_t point) override {
    MutexLock lock(mutex_);
    while (done_ < point) passed_.Wait(mutex_);
    return failed_ < point ? error_ : absl::OkStatus();
  }

  // Waits for an event of another stream.
  absl::Status Await(const Event& event) {
    SetAwaited(event);
    const absl::Status status = event.Synchronize();
    SetAwaited(Event());
    return status;
  }

  std::shared_ptr<State> Awaited() const override {
    // Not under the lock: streams that wait for each other have no order.
    const Event awaited = GetAwaited();
    const std::shared_ptr<State>& state = awaited.state();
    if (state == nullptr || state->HasPassed(awaited.point())) return nullptr;
    return state;
  }

  bool HasPassed(int64_t point) const override { return done() >= point; }

  int64_t done() const {
    MutexLock lock(mutex_);
    return done_;
  }
  absl::Status status() const {
    MutexLock lock(mutex_);
    return error_;
  }

 private:
  Event GetAwaited() const {
    MutexLock lock(mutex_);
    return awaited_;
  }
  void SetAwaited(Event event) {
    MutexLock lock(mutex_);
    std::swap(awaited_, event);
  }

  mutable Mutex mutex_;
  CondVar passed_;
  Event awaited_ ABSL_GUARDED_BY(mutex_);
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  int64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;  // the item that did
};

// The state of a point that a failed stream has passed.
class Failure final : public Event::State {
 public:
  explicit Failure(absl::Status error) : error_(std::move(error)) {}
  absl::Status Synchronize(int64_t) override { return error_; }

 private:
  const absl::Status error_;
};

// What both kinds do for traces.
class TracedStream : public Stream {
 public:
  TracedStream(Device& device, absl::string_view name, CpuTracer* tracer)
      : Stream(device, name),
        tracer_(tracer),
        index_(tracer == nullptr ? -1 : tracer->AddStream(name)) {}

  void BeginRange(absl::string_view action,
                  absl::string_view subject) override {
    if (tracer_ != nullptr) tracer_->BeginRange(index_, action, subject);
  }
  void EndRange() override {
    if (tracer_ != nullptr) tracer_->EndRange(index_);
  }

 protected:
  // A number for RunTraced.
  int64_t TraceLaunch(const LaunchDescriptor& descriptor) {
    return tracer_ == nullptr ? -1 : tracer_->Enqueue(index_, descriptor);
  }
  absl::Status RunTraced(int64_t number, LaunchBody& body) {
    return tracer_ == nullptr ? body()
                              : tracer_->Run(number, [&] { return body(); });
  }

 private:
  CpuTracer* const tracer_;
  const int index_;
};

// The calling thread is the stream. Calls come one at a time: no lock.
class InlineStream final : public TracedStream {
 public:
  using TracedStream::TracedStream;

  absl::Status Launch(const LaunchDescriptor& descriptor,
                      LaunchBody body) override {
    if (!error_.ok()) return error_;
    error_.Update(RunTraced(TraceLaunch(descriptor), body));
    return error_;
  }

  Event Record() override {
    return error_.ok() ? Event() : Event(std::make_shared<Failure>(error_));
  }

  absl::Status Wait(const Event& event) override {
    error_.Update(event.Synchronize());
    return error_;
  }

  absl::Status Synchronize() override { return error_; }
  absl::Status status() const override { return error_; }

 private:
  absl::Status error_;
};

// A thread takes items from the front of a queue.
//
// A failed stream drops work, but still takes items in order and waits for
// events: what comes behind a wait, a stream-ordered free above all, never
// happens before the event. Events always pass, so this ends.
class WorkerStream final : public TracedStream {
 public:
  using TracedStream::TracedStream;
  ~WorkerStream() override;

  // Called once, before anything else.
  absl::Status Start();

  absl::Status Launch(const LaunchDescriptor& descriptor,
                      LaunchBody body) override {
    return Enqueue(
        {.body = std::move(body), .number = TraceLaunch(descriptor)});
  }
  Event Record() override;
  absl::Status Wait(const Event& event) override;
  absl::Status Synchronize() override {
    return progress_->Synchronize(enqueued());
  }
  absl::Status status() const override { return progress_->status(); }
  std::shared_ptr<Event::State> progress() const override { return progress_; }

 private:
  // One of the two: work, which a failed stream drops; an event to wait for.
  struct Item {
    LaunchBody body = nullptr;
    Event event = {};
    int64_t number = -1;  // of the work, in traces
  };

  // Returns the error known by now.
  absl::Status Enqueue(Item item);
  int64_t enqueued() const {
    MutexLock lock(mutex_);
    return enqueued_;
  }
  void Work();
  // Blocks for the next item; nullopt when the stream is to end and nothing is
  // left.
  std::optional<Item> Next();
  void Run(Item item);

  mutable Mutex mutex_;
  CondVar ready_;  // an item has come, or stopping_
  RingQueue<Item> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t enqueued_ ABSL_GUARDED_BY(mutex_) = 0;  // items so far
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::thread worker_;
};

absl::Status WorkerStream::Start() {
  try {
    worker_ = std::thread([this] { Work(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("device: want a thread for stream '", name(), "', found ",
                     error.what()));
  }
  return absl::OkStatus();
}

WorkerStream::~WorkerStream() {
  if (!worker_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    ready_.NotifyOne();
  }
  worker_.join();
}

absl::Status WorkerStream::Enqueue(Item item) {
  {
    MutexLock lock(mutex_);
    queue_.Push(std::move(item));
    ++enqueued_;
    ready_.NotifyOne();
  }
  return status();
}

Event WorkerStream::Record() {
  const int64_t point = enqueued();
  if (progress_->done() == point && status().ok()) return Event();
  return Event(progress_, point);
}

absl::Status WorkerStream::Wait(const Event& event) {
  if (event.state() == nullptr) return status();
  return Enqueue({.event = event});
}

void WorkerStream::Work() {
  while (std::optional<Item> item = Next()) {
    Run(*std::move(item));
    // The item is destroyed: what waits for it may count on that.
    progress_->Advance();
  }
}

std::optional<WorkerStream::Item> WorkerStream::Next() {
  MutexLock lock(mutex_);
  while (queue_.empty() && !stopping_) ready_.Wait(mutex_);
  if (queue_.empty()) return std::nullopt;
  return queue_.Pop();
}

void WorkerStream::Run(Item item) {
  absl::Status result;
  if (!item.body) {
    result = progress_->Await(item.event);
  } else if (status().ok()) {
    result = RunTraced(item.number, item.body);
  }
  if (!result.ok()) progress_->Fail(std::move(result));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> NewCpuStream(CpuStreams kind,
                                                     Device& device,
                                                     absl::string_view name,
                                                     CpuTracer* tracer) {
  if (kind == CpuStreams::kInline) {
    return std::make_unique<InlineStream>(device, name, tracer);
  }
  auto stream = std::make_unique<WorkerStream>(device, name, tracer);
  TESSERA_RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace tessera::internal
