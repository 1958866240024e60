#include "tessera/device/cuda/cuda_stream.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cuda/cuda_status.h"
#include "tessera/device/cuda/launch.h"
#include "tessera/device/device.h"

namespace tessera::internal {
namespace {

using Clock = std::chrono::steady_clock;

// How long the host looks again and again before it begins to sleep.
constexpr auto kSpinning = std::chrono::microseconds(50);
constexpr auto kNap = std::chrono::microseconds(20);

// The capture that a stream is in; 0: none.
uint64_t CaptureOf(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;  // NOLINT(google-runtime-int)
  const cudaError_t error = cudaStreamGetCaptureInfo(
      stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
  return error == cudaSuccess && status == cudaStreamCaptureStatusActive ? id
                                                                         : 0;
}

// Whether an event that was not captured has passed, while this thread may
// capture.
bool HasPassed(cudaEvent_t event) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t error = cudaEventQuery(event);
  cudaThreadExchangeStreamCaptureMode(&mode);
  return error == cudaSuccess;
}

}  // namespace

// What a stream shares with its events, which may outlive it. Events are
// numbered as they are recorded. Thread-safe.
class CudaStream::Progress : public std::enable_shared_from_this<Progress> {
 public:
  Progress(int ordinal, absl::string_view name, cudaStream_t stream)
      : ordinal_(ordinal), name_(name), stream_(stream) {}
  ~Progress() {
    const CurrentDevice current(ordinal_);
    for (cudaEvent_t event : idle_) cudaEventDestroy(event);
  }

  const std::string& name() const { return name_; }

  // A new event: its number, CUDA's, and the capture that it is in, if any.
  struct Recorded {
    int64_t number;
    cudaEvent_t event;  // null: has passed
    uint64_t capture;
  };
  // Where CUDA makes none, waits until the stream has come here.
  Recorded Record();
  // The capture that the stream is in; 0: none.
  uint64_t capture() const {
    MutexLock lock(mutex_);
    return stream_ == nullptr ? 0 : CaptureOf(stream_);
  }
  // The stream is no more.
  void EndStream() {
    MutexLock lock(mutex_);
    stream_ = nullptr;
  }
  // The event is not used any more.
  void Return(cudaEvent_t event) {
    MutexLock lock(mutex_);
    idle_.push_back(event);
  }

  // What is enqueued from now on fails.
  void Fail(const absl::Status& error) {
    MutexLock lock(mutex_);
    FailFrom(recorded_, error);
  }
  absl::Status status() const {
    MutexLock lock(mutex_);
    return error_;
  }
  // The error that an event of this number hands on.
  absl::Status ErrorAt(int64_t number) const {
    MutexLock lock(mutex_);
    return first_failed_ <= number ? error_ : absl::OkStatus();
  }

  // Blocks until an event has passed, or the stream has come to its end.
  // Returns the error at that point.
  absl::Status Await(const Recorded& recorded);
  absl::Status AwaitEnd();

  void AddMonitor(std::weak_ptr<StreamMonitor> monitor) {
    MutexLock lock(mutex_);
    std::erase_if(monitors_, [](const auto& old) { return old.expired(); });
    monitors_.push_back(std::move(monitor));
  }
  // The stream waits for this event of `other`: what fails in front of that
  // fails here, too, however late that is known.
  void Follow(const std::shared_ptr<Progress>& other, int64_t number);

 private:
  struct Followed {
    std::weak_ptr<Progress> progress;
    int64_t number;  // the last event that is waited for
  };
  using Several = std::vector<std::shared_ptr<Progress>>;

  void FailFrom(int64_t number, const absl::Status& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (error.ok() || !error_.ok()) return;
    error_ = absl::Status(error.code(),
                          absl::StrCat(error.message(), " (stream '", name_,
                                       "' of cuda:", ordinal_, ")"));
    first_failed_ = number;
  }
  // What is not known to have passed fails with `error`.
  void FailPending(const absl::Status& error) {
    MutexLock lock(mutex_);
    FailFrom(passed_, error);
  }
  // The events recorded so far.
  int64_t recorded() const {
    MutexLock lock(mutex_);
    return recorded_;
  }
  // Blocks until look() is no longer cudaErrorNotReady, and then waits by
  // settle(), which takes no time: so that whoever follows what the host waits
  // for knows. So many events have passed then. Returns the error in front of
  // them.
  template <typename Look, typename Settle>
  absl::Status AwaitPassing(int64_t events, Look look, Settle settle);
  // Asks those that still exist.
  void AskMonitors();
  // This, and what it follows, directly or not.
  Several WithFollowed();
  // Hands errors on among them.
  static void HandOn(const Several& all);
  // True if it has failed by that.
  bool TakeOver();

  const int ordinal_;
  const std::string name_;  // the stream's
  mutable Mutex mutex_;
  cudaStream_t stream_ ABSL_GUARDED_BY(mutex_);
  std::vector<cudaEvent_t> idle_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<StreamMonitor>> monitors_ ABSL_GUARDED_BY(mutex_);
  std::vector<Followed> followed_ ABSL_GUARDED_BY(mutex_);
  int64_t recorded_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t passed_ ABSL_GUARDED_BY(mutex_) = 0;  // events known to have
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  int64_t first_failed_ ABSL_GUARDED_BY(mutex_) = INT64_MAX;
};

CudaStream::Progress::Recorded CudaStream::Progress::Record() {
  const CurrentDevice current(ordinal_);
  MutexLock lock(mutex_);
  FailFrom(recorded_, current.status());
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaSuccess;
  if (!idle_.empty()) {
    event = idle_.back();
    idle_.pop_back();
  } else {
    error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  if (error == cudaSuccess) error = cudaEventRecord(event, stream_);
  if (error != cudaSuccess) {
    FailFrom(recorded_, CudaStatus(error, "cudaEventRecord"));
    if (event != nullptr) idle_.push_back(std::exchange(event, nullptr));
    cudaStreamSynchronize(stream_);
  }
  return {recorded_++, event, CaptureOf(stream_)};
}

template <typename Look, typename Settle>
absl::Status CudaStream::Progress::AwaitPassing(int64_t events, Look look,
                                                Settle settle) {
  const auto began = Clock::now();
  const Several all = WithFollowed();
  cudaError_t error = look();
  for (; error == cudaErrorNotReady; error = look()) {
    for (const auto& progress : all) progress->AskMonitors();
    if (Clock::now() - began > kSpinning) std::this_thread::sleep_for(kNap);
  }
  const cudaError_t settled = settle();
  if (error == cudaSuccess) error = settled;
  FailPending(CudaStatus(error, "what was enqueued to be done"));
  HandOn(all);
  MutexLock lock(mutex_);
  if (first_failed_ < events) return error_;
  passed_ = std::max(passed_, events);
  return absl::OkStatus();
}

absl::Status CudaStream::Progress::Await(const Recorded& recorded) {
  if (recorded.event == nullptr) return ErrorAt(recorded.number);
  if (recorded.capture != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cuda: the host waits for an event that was captured on stream '",
        name_, "' of cuda:", ordinal_));
  }
  return AwaitPassing(
      recorded.number + 1, [&] { return cudaEventQuery(recorded.event); },
      [&] { return cudaEventSynchronize(recorded.event); });
}

absl::Status CudaStream::Progress::AwaitEnd() {
  const cudaStream_t stream = [&] {
    MutexLock lock(mutex_);
    return stream_;
  }();
  AwaitPassing(
      recorded(), [&] { return cudaStreamQuery(stream); },
      [&] { return cudaStreamSynchronize(stream); })
      .IgnoreError();  // is in status()
  return status();
}

void CudaStream::Progress::AskMonitors() {
  std::vector<std::weak_ptr<StreamMonitor>> monitors;
  {
    MutexLock lock(mutex_);
    monitors = monitors_;
  }
  for (const std::weak_ptr<StreamMonitor>& weak : monitors) {
    if (const auto monitor = weak.lock()) FailPending(monitor->Check());
  }
}

void CudaStream::Progress::Follow(const std::shared_ptr<Progress>& other,
                                  int64_t number) {
  if (other.get() == this) return;
  MutexLock lock(mutex_);
  std::erase_if(followed_,
                [](const Followed& old) { return old.progress.expired(); });
  for (Followed& followed : followed_) {
    if (followed.progress.lock() != other) continue;
    followed.number = std::max(followed.number, number);
    return;
  }
  followed_.push_back({other, number});
}

CudaStream::Progress::Several CudaStream::Progress::WithFollowed() {
  Several all = {shared_from_this()};
  for (size_t i = 0; i < all.size(); ++i) {
    MutexLock lock(all[i]->mutex_);
    for (const Followed& followed : all[i]->followed_) {
      std::shared_ptr<Progress> progress = followed.progress.lock();
      if (progress == nullptr ||
          std::find(all.begin(), all.end(), progress) != all.end()) {
        continue;
      }
      all.push_back(std::move(progress));
    }
  }
  return all;
}

void CudaStream::Progress::HandOn(const Several& all) {
  bool has_failed = true;
  while (has_failed) {
    has_failed = false;
    for (const auto& progress : all) has_failed |= progress->TakeOver();
  }
}

bool CudaStream::Progress::TakeOver() {
  std::vector<Followed> all;
  {
    MutexLock lock(mutex_);
    if (!error_.ok()) return false;
    all = followed_;
  }
  for (const Followed& followed : all) {
    const auto progress = followed.progress.lock();
    if (progress == nullptr) continue;
    FailPending(progress->ErrorAt(followed.number));
  }
  return !status().ok();
}

// The state of one event.
class CudaStream::Point final : public Event::State {
 public:
  Point(std::shared_ptr<Progress> progress, Progress::Recorded recorded)
      : progress_(std::move(progress)), recorded_(recorded) {}
  ~Point() override {
    if (recorded_.event != nullptr) progress_->Return(recorded_.event);
  }

  absl::Status Synchronize(int64_t) override {
    return progress_->Await(recorded_);
  }

  // Null where it has passed for sure. One that was captured has, as soon as
  // the capture ends: who replays it orders that as a whole.
  cudaEvent_t event() const {
    return recorded_.capture == progress_->capture() || recorded_.capture == 0
               ? recorded_.event
               : nullptr;
  }
  bool is_captured() const { return recorded_.capture != 0; }
  const std::string& stream() const { return progress_->name(); }
  absl::Status error() const { return progress_->ErrorAt(recorded_.number); }
  void LetFollow(Progress& follower) const {
    follower.Follow(progress_, recorded_.number);
  }

 private:
  const std::shared_ptr<Progress> progress_;
  const Progress::Recorded recorded_;
};

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(
    Device& device, int ordinal, absl::string_view name, int priority,
    const NvtxDomain& nvtx) {
  const CurrentDevice current(ordinal);
  TESSERA_RETURN_IF_ERROR(current.status());
  cudaStream_t stream = nullptr;
  TESSERA_RETURN_IF_ERROR(CudaStatus(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
      "cudaStreamCreate"));
  auto created = absl::WrapUnique(
      new CudaStream(device, ordinal, name, stream, /*is_owned=*/true, nvtx));
  TESSERA_RETURN_IF_ERROR(created->Init());
  return created;
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Wrap(
    Device& device, int ordinal, absl::string_view name, cudaStream_t stream,
    const NvtxDomain& nvtx) {
  auto wrapped = absl::WrapUnique(
      new CudaStream(device, ordinal, name, stream, /*is_owned=*/false, nvtx));
  TESSERA_RETURN_IF_ERROR(wrapped->Init());
  return wrapped;
}

CudaStream::CudaStream(Device& device, int ordinal, absl::string_view name,
                       cudaStream_t stream, bool is_owned,
                       const NvtxDomain& nvtx)
    : Stream(device, name),
      ordinal_(ordinal),
      stream_(stream),
      is_owned_(is_owned),
      nvtx_(nvtx),
      progress_(std::make_shared<Progress>(ordinal, name, stream)) {}

absl::Status CudaStream::Init() {
  const CurrentDevice current(ordinal_);
  nvtx_.NameStream(stream_, name());
  return CudaStatus(cudaMallocAsync(reinterpret_cast<void**>(&sum_scratch_),
                                    kSumBlocks * sizeof(double), stream_),
                    "cudaMallocAsync");
}

CudaStream::~CudaStream() {
  Synchronize().IgnoreError();  // who wants to know has asked
  progress_->EndStream();
  const CurrentDevice current(ordinal_);
  if (sum_scratch_ != nullptr) cudaFreeAsync(sum_scratch_, stream_);
  if (is_owned_) cudaStreamDestroy(stream_);
}

absl::Status CudaStream::Launch(const LaunchDescriptor& descriptor,
                                LaunchBody body) {
  TESSERA_RETURN_IF_ERROR(status());
  const CurrentDevice current(ordinal_);
  nvtx_.Push(descriptor.name);
  Fail(current.status().ok() ? body() : current.status());
  nvtx_.Pop();
  return status();
}

Event CudaStream::Record() {
  return Event(std::make_shared<Point>(progress_, progress_->Record()));
}

absl::Status CudaStream::Wait(const Event& event) {
  TESSERA_RETURN_IF_ERROR(status());
  if (event.state() == nullptr) return absl::OkStatus();
  const auto* const point = dynamic_cast<const Point*>(event.state().get());
  if (point == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda: stream '", name(), "' of ", device().name(),
                     " waits for an event of another kind of device"));
  }
  const CurrentDevice current(ordinal_);
  Fail(current.status());
  if (const cudaEvent_t cuda_event = point->event(); cuda_event != nullptr) {
    const bool comes_from_outside =
        !point->is_captured() && CaptureOf(stream_) != 0;
    Fail(comes_from_outside
             ? CheckPassed(cuda_event, point->stream())
             : CudaStatus(cudaStreamWaitEvent(stream_, cuda_event, 0),
                          "cudaStreamWaitEvent"));
  }
  Fail(point->error());
  point->LetFollow(*progress_);
  return status();
}

absl::Status CudaStream::CheckPassed(cudaEvent_t event,
                                     absl::string_view stream) const {
  if (HasPassed(event)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cuda: stream '", name(), "' is captured, and waits for what stream '",
      stream, "' was given before and has not done: synchronize first"));
}

absl::Status CudaStream::Synchronize() {
  const CurrentDevice current(ordinal_);
  return progress_->AwaitEnd();
}

absl::Status CudaStream::status() const { return progress_->status(); }

void CudaStream::BeginRange(absl::string_view action,
                            absl::string_view subject) {
  nvtx_.Push(action, subject);
}

void CudaStream::EndRange() { nvtx_.Pop(); }

void CudaStream::Fail(const absl::Status& error) { progress_->Fail(error); }

void CudaStream::AddMonitor(std::weak_ptr<StreamMonitor> monitor) {
  progress_->AddMonitor(std::move(monitor));
}

}  // namespace tessera::internal
