#include "tessera/device/cpu/cpu_stream.h"

#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/mutex.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

// A point that a stream comes to once.
class Milestone final : public Event::State {
 public:
  // `status` is the stream's at this point.
  void Pass(absl::Status status) {
    MutexLock lock(mutex_);
    status_ = std::move(status);
    passed_.NotifyAll();
  }

  absl::Status Synchronize() override {
    MutexLock lock(mutex_);
    while (!status_.has_value()) passed_.Wait(mutex_);
    return *status_;
  }

 private:
  Mutex mutex_;
  CondVar passed_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

// The event of a stream that has nothing left to do.
Event PassedEvent(const absl::Status& status) {
  if (status.ok()) return Event();
  auto milestone = std::make_shared<Milestone>();
  milestone->Pass(status);
  return Event(std::move(milestone));
}

// The calling thread is the stream. Calls come one at a time: no lock.
class InlineStream final : public Stream {
 public:
  InlineStream(Device& device, absl::string_view name) : Stream(device, name) {}

  absl::Status Launch(const LaunchDescriptor&, LaunchBody body) override {
    if (error_.ok()) error_.Update(body());
    return error_;
  }

  Event Record() override { return PassedEvent(error_); }

  absl::Status Wait(const Event& event) override {
    error_.Update(event.Synchronize());
    return error_;
  }

  absl::Status Synchronize() override { return error_; }
  absl::Status status() const override { return error_; }

 private:
  absl::Status error_;
};

// A thread takes items from the front of a queue. The stream is idle when the
// queue is empty and no item is running.
//
// A failed stream drops work, but still takes items in order and waits for
// events: what comes behind a wait, a stream-ordered free above all, never
// happens before the event. Events always pass, so this ends.
class WorkerStream final : public Stream {
 public:
  WorkerStream(Device& device, absl::string_view name) : Stream(device, name) {}
  ~WorkerStream() override;

  // Called once, before anything else.
  absl::Status Start();

  absl::Status Launch(const LaunchDescriptor&, LaunchBody body) override {
    return Enqueue({.body = std::move(body)});
  }
  Event Record() override;
  absl::Status Wait(const Event& event) override;
  absl::Status Synchronize() override { return Record().Synchronize(); }
  absl::Status status() const override {
    MutexLock lock(mutex_);
    return error_;
  }

 private:
  // One of the three: work, which a failed stream drops; a point to pass; an
  // event to wait for.
  struct Item {
    LaunchBody body = nullptr;
    std::shared_ptr<Milestone> milestone = nullptr;
    Event event = {};
  };

  // Returns the error known by now.
  absl::Status Enqueue(Item item);
  void Work();
  // Ends the item before and blocks for the next one; nullopt when the stream
  // is to end and nothing is left.
  std::optional<Item> Next();
  void Run(Item& item);

  mutable Mutex mutex_;
  CondVar ready_;  // an item has come, or stopping_
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
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
  MutexLock lock(mutex_);
  queue_.push_back(std::move(item));
  ready_.NotifyOne();
  return error_;
}

Event WorkerStream::Record() {
  MutexLock lock(mutex_);
  if (queue_.empty() && !running_) return PassedEvent(error_);
  auto milestone = std::make_shared<Milestone>();
  queue_.push_back({.milestone = milestone});
  ready_.NotifyOne();
  return Event(std::move(milestone));
}

absl::Status WorkerStream::Wait(const Event& event) {
  if (event.state() == nullptr) return status();
  return Enqueue({.event = event});
}

void WorkerStream::Work() {
  while (std::optional<Item> item = Next()) Run(*item);
}

std::optional<WorkerStream::Item> WorkerStream::Next() {
  MutexLock lock(mutex_);
  running_ = false;
  while (queue_.empty() && !stopping_) ready_.Wait(mutex_);
  if (queue_.empty()) return std::nullopt;
  std::optional<Item> item = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  return item;
}

void WorkerStream::Run(Item& item) {
  absl::Status result;
  if (item.milestone != nullptr) {
    item.milestone->Pass(status());
  } else if (item.body == nullptr) {
    result = item.event.Synchronize();
  } else if (status().ok()) {
    result = item.body();
  }
  if (result.ok()) return;
  MutexLock lock(mutex_);
  error_.Update(std::move(result));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> NewCpuStream(CpuStreams kind,
                                                     Device& device,
                                                     absl::string_view name) {
  if (kind == CpuStreams::kInline) {
    return std::make_unique<InlineStream>(device, name);
  }
  auto stream = std::make_unique<WorkerStream>(device, name);
  TESSERA_RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace tessera::internal
