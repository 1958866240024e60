#include "tessera/testing/scheduled_device.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::testing {
namespace {

constexpr std::byte kPoison{0xff};
constexpr int64_t kAlignment = 128;
constexpr int64_t kGuard = RaceDetector::kGuardBytes;

}  // namespace

// ScheduledDevice.

std::optional<ScheduledDevice::Block> ScheduledDevice::Block::Create(
    int64_t bytes) {
  constexpr int64_t kAround = 2 * kGuard + kAlignment;
  if (bytes > std::numeric_limits<int64_t>::max() - kAround) {
    return std::nullopt;
  }
  Block block;
  block.bytes = bytes;
  try {
    block.memory.resize(bytes + kAround, kPoison);
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  return block;
}

std::byte* ScheduledDevice::Block::data() const {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data()) + kGuard;
  const uintptr_t aligned = (begin + kAlignment - 1) / kAlignment * kAlignment;
  return reinterpret_cast<std::byte*>(aligned);
}

bool ScheduledDevice::Block::IsPoison(int64_t begin, int64_t end) const {
  return std::all_of(data() + begin, data() + end,
                     [](std::byte byte) { return byte == kPoison; });
}

ScheduledDevice::~ScheduledDevice() {
  for (const auto& [data, block] : blocks_) {
    if (!block.IsPoison(-kGuard, 0) ||
        !block.IsPoison(block.bytes, block.bytes + kGuard)) {
      detector_.Report(absl::StrCat("memory beside '", block.tag, "' of ",
                                    block.bytes, " bytes was written"));
    }
    if (block.freed && !block.IsPoison(0, block.bytes)) {
      detector_.Report(absl::StrCat("'", block.tag, "' of ", block.bytes,
                                    " bytes was written after it was freed"));
    }
  }
}

absl::StatusOr<std::unique_ptr<Stream>> ScheduledDevice::NewStream(
    absl::string_view name) {
  return std::make_unique<ScheduledStream>(*this, name, scheduler_, detector_);
}

void* ScheduledDevice::DoAllocate(int64_t bytes, absl::string_view tag,
                                  Stream* first_use) {
  std::optional<Block> block = Block::Create(bytes);
  if (!block.has_value()) return nullptr;
  block->tag = std::string(tag);
  void* const data = block->data();
  blocks_.emplace(data, *std::move(block));  // its memory stays where it is
  detector_.Allocate(data, bytes, tag);
  if (first_use != nullptr) {
    const MemoryRange writes[] = {{data, bytes}};
    detector_.Launch(static_cast<ScheduledStream*>(first_use)->number(),
                     "allocate", {}, writes);
  }
  return data;
}

void ScheduledDevice::DoFree(void* data, int64_t, absl::string_view,
                             Stream* after) {
  if (after == nullptr) {
    detector_.FreeOnHost(data);
    Poison(data);
    return;
  }
  static_cast<ScheduledStream*>(after)->Free(data,
                                             [this, data] { Poison(data); });
}

void ScheduledDevice::Poison(void* data) {
  Block& block = blocks_.at(data);
  std::fill_n(block.data(), block.bytes, kPoison);
  block.freed = true;
}

// ScheduledStream.

struct ScheduledStream::Progress {
  // Keeps the first error, which the operation that runs now has.
  void Fail(absl::Status status) {
    if (status.ok() || !error.ok()) return;
    error = std::move(status);
    failed = scheduler.done(queue);
  }
  bool HasPassed(int64_t point) const { return scheduler.done(queue) >= point; }
  absl::Status ErrorBefore(int64_t point) const {
    return failed < point ? error : absl::OkStatus();
  }

  Scheduler& scheduler;
  RaceDetector& detector;
  const std::string name;
  const int number;  // in the detector
  const int queue;   // in the scheduler
  absl::Status error = {};
  int64_t failed = 0;
};

// The state of one event: it passes once so many operations are done.
class ScheduledStream::Passing final : public Event::State {
 public:
  Passing(std::shared_ptr<Progress> progress, StreamOrder::Point order)
      : progress_(std::move(progress)), order_(std::move(order)) {}

  absl::Status Synchronize(int64_t point) override {
    TESSERA_RETURN_IF_ERROR(progress_->scheduler.BlockUntil(
        [this, point] { return progress_->HasPassed(point); },
        absl::StrCat("waits for stream '", progress_->name, "'")));
    progress_->detector.SynchronizeHost(order_);
    return progress_->ErrorBefore(point);
  }

  const std::shared_ptr<Progress>& progress() const { return progress_; }
  const StreamOrder::Point& order() const { return order_; }

 private:
  const std::shared_ptr<Progress> progress_;
  const StreamOrder::Point order_;
};

ScheduledStream::ScheduledStream(Device& device, absl::string_view name,
                                 Scheduler& scheduler, RaceDetector& detector)
    : Stream(device, name),
      progress_(std::make_shared<Progress>(Progress{
          scheduler, detector, std::string(name), detector.AddStream(name),
          scheduler.AddQueue(
              absl::StrCat("stream '", name, "' of ", device.name()))})) {}

ScheduledStream::~ScheduledStream() {
  Synchronize().IgnoreError();  // who wants to know has asked
}

absl::Status ScheduledStream::status() const { return progress_->error; }

int ScheduledStream::number() const { return progress_->number; }

int64_t ScheduledStream::pushed() const {
  return progress_->scheduler.pushed(progress_->queue);
}

int64_t ScheduledStream::done() const {
  return progress_->scheduler.done(progress_->queue);
}

absl::Status ScheduledStream::Launch(const LaunchDescriptor& descriptor,
                                     LaunchBody body) {
  return LaunchWhen(
      descriptor, [] { return true; },
      [body = std::move(body)](const absl::Status& so_far) mutable {
        return so_far.ok() ? body() : so_far;
      });
}

absl::Status ScheduledStream::LaunchWhen(const LaunchDescriptor& descriptor,
                                         std::function<bool()> ready,
                                         Body body) {
  progress_->detector.Launch(progress_->number, descriptor.name,
                             descriptor.reads, descriptor.writes);
  Push(
      descriptor.name,
      [&progress = *progress_, ready = std::move(ready)] {
        return !progress.error.ok() || ready();
      },
      std::move(body));
  return Yield();
}

void ScheduledStream::Free(const void* data, std::function<void()> body) {
  progress_->detector.FreeOnStream(data, progress_->number);
  Push("free", nullptr, [body = std::move(body)](const absl::Status& so_far) {
    body();
    return so_far;
  });
}

Event ScheduledStream::Record() {
  return Event(std::make_shared<Passing>(
                   progress_, progress_->detector.Record(progress_->number)),
               pushed());
}

absl::Status ScheduledStream::Wait(const Event& event) {
  const auto* const state = dynamic_cast<const Passing*>(event.state().get());
  const bool is_ours =
      state != nullptr && &state->progress()->detector == &progress_->detector;
  if (event.state() != nullptr && !is_ours) {
    return absl::InvalidArgumentError(
        absl::StrCat("testing: stream '", name(), "' of ", device().name(),
                     " waits for an event of another device"));
  }
  if (!progress_->detector.Wait(progress_->number,
                                is_ours ? &state->order() : nullptr)) {
    return status();
  }
  if (!is_ours) return status();
  const auto others = state->progress();
  const int64_t point = event.point();
  Push(
      absl::StrCat("wait for '", others->name, "'"),
      [others, point] { return others->HasPassed(point); },
      [others, point](const absl::Status&) {
        return others->ErrorBefore(point);
      });
  return Yield();
}

absl::Status ScheduledStream::Synchronize() { return Record().Synchronize(); }

void ScheduledStream::Push(absl::string_view name, std::function<bool()> ready,
                           Body body) {
  progress_->scheduler.Push(
      progress_->queue,
      {.name = std::string(name),
       .ready = std::move(ready),
       .run = [&progress = *progress_, body = std::move(body)]() mutable {
         progress.Fail(progress.scheduler.failure());
         progress.Fail(body(progress.error));
       }});
}

absl::Status ScheduledStream::Yield() {
  progress_->scheduler.Yield();
  return status();
}

}  // namespace tessera::testing
