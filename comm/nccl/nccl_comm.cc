#include "tessera/comm/nccl/nccl_comm.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tessera/base/deadline.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/nccl/nccl_status.h"
#include "tessera/device/cuda/cuda_status.h"

namespace tessera::internal {
namespace {

// How long the host looks again and again before it begins to sleep. Launches
// are mostly done by then.
constexpr auto kSpinning = std::chrono::microseconds(50);
constexpr auto kNap = std::chrono::microseconds(20);

// While it is in scope, this thread may ask after events although it captures a
// stream.
class AskingWhileCapturing {
 public:
  AskingWhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AskingWhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AskingWhileCapturing(const AskingWhileCapturing&) = delete;
  AskingWhileCapturing& operator=(const AskingWhileCapturing&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// LIFETIME: borrows the name.
ncclConfig_t ConfigOf(const std::string& name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name.c_str();
  return config;
}

bool IsCaptured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;  // NOLINT(google-runtime-int)
  return cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr,
                                  nullptr, nullptr) == cudaSuccess &&
         status == cudaStreamCaptureStatusActive;
}

}  // namespace

absl::StatusOr<std::shared_ptr<NcclComm>> NcclComm::Create(const NcclId& id,
                                                           Options options) {
  std::shared_ptr<NcclComm> created(
      new NcclComm(nullptr, /*is_owned=*/true, std::move(options)));
  TESSERA_RETURN_IF_ERROR(created->Init(id));
  return created;
}

absl::Status NcclComm::Init(const NcclId& id) {
  const CurrentDevice current(options_.ordinal);
  TESSERA_RETURN_IF_ERROR(current.status());
  ncclUniqueId unique;
  static_assert(sizeof(unique.internal) == sizeof(id.bytes));
  std::memcpy(unique.internal, id.bytes.data(), sizeof(unique.internal));
  ncclConfig_t config = ConfigOf(options_.name);
  ncclResult_t result;
  {
    MutexLock lock(mutex_);
    result = ncclCommInitRankConfig(&comm_, options_.size, unique,
                                    options_.rank, &config);
  }
  return AwaitCall("ncclCommInitRankConfig", result);
}

absl::StatusOr<std::shared_ptr<NcclComm>> NcclComm::Split(int color, int key,
                                                          Options options) {
  const CurrentDevice current(options_.ordinal);
  TESSERA_RETURN_IF_ERROR(current.status());
  TESSERA_RETURN_IF_ERROR(status());
  AwaitIdle();
  TESSERA_RETURN_IF_ERROR(Check());
  std::shared_ptr<NcclComm> created(
      new NcclComm(nullptr, /*is_owned=*/true, std::move(options)));
  ncclConfig_t config = ConfigOf(created->options_.name);
  config.splitShare = 0;
  ncclComm_t made = nullptr;  // is there once this one is done
  ncclResult_t result = ncclSuccess;
  {
    MutexLock lock(mutex_);
    if (comm_ != nullptr) {
      result = ncclCommSplit(comm_, color, key, &made, &config);
    }
  }
  const absl::Status split = AwaitCall("ncclCommSplit", result);
  {
    MutexLock lock(created->mutex_);
    created->comm_ = made;
  }
  if (!split.ok()) created->Abort(split.message());
  TESSERA_RETURN_IF_ERROR(split);
  if (color == NCCL_SPLIT_NOCOLOR) return nullptr;
  TESSERA_RETURN_IF_ERROR(created->AwaitCall("ncclCommSplit", ncclInProgress));
  return created;
}

NcclComm::~NcclComm() {
  AwaitIdle();
  const CurrentDevice current(options_.ordinal);
  Destroy();
  MutexLock lock(mutex_);
  for (const Pending& pending : pending_) cudaEventDestroy(pending.event);
  for (cudaEvent_t event : idle_) cudaEventDestroy(event);
}

bool NcclComm::IsBusy() {
  if (!Check().ok()) return false;
  MutexLock lock(mutex_);
  return !pending_.empty();
}

void NcclComm::AwaitIdle() {
  while (IsBusy()) std::this_thread::sleep_for(kNap);
}

void NcclComm::Destroy() {
  ncclResult_t result;
  {
    MutexLock lock(mutex_);
    if (comm_ == nullptr) return;
    for (const Registration& registration : registrations_) {
      ncclCommDeregister(comm_, registration.handle);
    }
    for (const auto& [data, window] : windows_) {
      ncclCommWindowDeregister(comm_, window);
    }
    if (!is_owned_) return;
    result = ncclCommFinalize(comm_);
  }
  // Where that fails, the ncclComm_t is gone.
  if (!AwaitCall("ncclCommFinalize", result).ok()) return;
  MutexLock lock(mutex_);
  ncclCommDestroy(comm_);
}

// Launches.

absl::Status NcclComm::Launch(
    cudaStream_t stream, const Moment& moment,
    absl::FunctionRef<ncclResult_t(ncclComm_t)> issue) {
  const CurrentDevice current(options_.ordinal);
  TESSERA_RETURN_IF_ERROR(current.status());
  TESSERA_RETURN_IF_ERROR(status());
  ncclResult_t result;
  {
    MutexLock lock(mutex_);
    result = comm_ == nullptr ? ncclSuccess : RunGroup(issue);
  }
  TESSERA_RETURN_IF_ERROR(AwaitCall(moment.what, result));
  return BeginPending(stream, moment);
}

ncclResult_t NcclComm::RunGroup(
    absl::FunctionRef<ncclResult_t(ncclComm_t)> issue) {
  const ncclResult_t began = ncclGroupStart();
  if (began != ncclSuccess) return began;
  const ncclResult_t issued = issue(comm_);
  const ncclResult_t ended = ncclGroupEnd();
  return issued != ncclSuccess && issued != ncclInProgress ? issued : ended;
}

absl::Status NcclComm::AwaitCall(absl::string_view function,
                                 ncclResult_t result) {
  const std::chrono::milliseconds timeout = timeout_;
  const Clock::time_point began = Clock::now();
  const Clock::time_point deadline = DeadlineAfter(began, timeout);
  while (result == ncclInProgress) {
    if (Clock::now() - began > kSpinning) std::this_thread::sleep_for(kNap);
    MutexLock lock(mutex_);
    if (comm_ == nullptr) break;
    result = AsyncError();
    if (result == ncclInProgress && Clock::now() >= deadline) {
      return Fail(absl::DeadlineExceededError(
          absl::StrCat("comm: ", function, " of '", options_.name, "' waited ",
                       timeout.count(), " ms for other ranks")));
    }
  }
  MutexLock lock(mutex_);
  return Fail(NcclStatus(function, result, comm_));
}

ncclResult_t NcclComm::AsyncError() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

// What is captured has no time yet: a graph may be launched at any.
absl::Status NcclComm::BeginPending(cudaStream_t stream, const Moment& moment) {
  if (IsCaptured(stream)) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (comm_ == nullptr) return failure_;
  const absl::StatusOr<cudaEvent_t> event = IdleEvent();
  if (!event.ok()) return Fail(event.status());
  const std::chrono::milliseconds timeout = timeout_;
  pending_.push_back(
      {*event, timeout, DeadlineAfter(Clock::now(), timeout), moment});
  return Fail(CudaStatus(cudaEventRecord(*event, stream), "cudaEventRecord"));
}

absl::StatusOr<cudaEvent_t> NcclComm::IdleEvent() {
  cudaEvent_t event = nullptr;
  if (!idle_.empty()) {
    event = idle_.back();
    idle_.pop_back();
    return event;
  }
  TESSERA_RETURN_IF_ERROR(
      CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                 "cudaEventCreate"));
  return event;
}

// Failures.

absl::Status NcclComm::Check() {
  const CurrentDevice current(options_.ordinal);
  const AskingWhileCapturing asking;
  MutexLock lock(mutex_);
  if (comm_ == nullptr) return failure_;
  const ncclResult_t result = AsyncError();
  if (result != ncclSuccess && result != ncclInProgress) {
    return Fail(NcclStatus(
        absl::StrCat("an operation of '", options_.name, "'"), result, comm_));
  }
  return CheckPending();
}

absl::Status NcclComm::CheckPending() {
  while (!pending_.empty()) {
    const Pending& oldest = pending_.front();
    const cudaError_t error = cudaEventQuery(oldest.event);
    if (error == cudaErrorNotReady) {
      if (Clock::now() < oldest.deadline) return absl::OkStatus();
      return Fail(absl::DeadlineExceededError(absl::StrCat(
          "comm: ", oldest.moment.what, ", operation ", oldest.moment.number,
          " of '", options_.name, "', has not ended within ",
          oldest.timeout.count(),
          " ms: a rank stays away, or what is enqueued before it is late")));
    }
    if (error != cudaSuccess) {
      return Fail(CudaStatus(error, "what was enqueued to be done"));
    }
    idle_.push_back(oldest.event);
    pending_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status NcclComm::status() const {
  MutexLock lock(mutex_);
  if (failure_.ok() || absl::IsAborted(failure_)) return failure_;
  return absl::AbortedError(absl::StrCat("comm: '", options_.name,
                                         "' is aborted: ", failure_.message()));
}

void NcclComm::Abort(absl::string_view reason) {
  const CurrentDevice current(options_.ordinal);
  MutexLock lock(mutex_);
  Fail(absl::AbortedError(
           absl::StrCat("comm: '", options_.name, "' is aborted: ", reason)))
      .IgnoreError();
}

absl::Status NcclComm::Fail(const absl::Status& error) {
  if (!failure_.ok() || error.ok()) return failure_;
  failure_ = error;
  if (comm_ == nullptr) return failure_;
  if (is_owned_) {
    ncclCommAbort(comm_);
  } else {
    ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT);  // its owner frees it
  }
  comm_ = nullptr;
  return failure_;
}

// Memory.

absl::Status NcclComm::Register(void* data, int64_t bytes) {
  const CurrentDevice current(options_.ordinal);
  MutexLock lock(mutex_);
  if (comm_ == nullptr) return absl::OkStatus();
  const bool is_known =
      std::any_of(registrations_.begin(), registrations_.end(),
                  [data](const Registration& r) { return r.data == data; });
  if (is_known) return absl::OkStatus();
  void* handle = nullptr;
  TESSERA_RETURN_IF_ERROR(
      Fail(NcclStatus("ncclCommRegister",
                      ncclCommRegister(comm_, data, bytes, &handle), comm_)));
  registrations_.push_back({data, handle});
  return absl::OkStatus();
}

absl::Status NcclComm::RegisterWindow(void* data, int64_t bytes) {
  const CurrentDevice current(options_.ordinal);
  TESSERA_RETURN_IF_ERROR(current.status());
  TESSERA_RETURN_IF_ERROR(status());
  ncclWindow_t window = nullptr;  // is there once the call is done
  ncclResult_t result = ncclSuccess;
  {
    MutexLock lock(mutex_);
    if (windows_.contains(data)) return absl::OkStatus();
    if (comm_ != nullptr) {
      result = ncclCommWindowRegister(comm_, data, bytes, &window,
                                      NCCL_WIN_COLL_SYMMETRIC);
    }
  }
  TESSERA_RETURN_IF_ERROR(AwaitCall("ncclCommWindowRegister", result));
  if (window == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("comm: NCCL has no symmetric memory between the GPUs of '",
                     options_.name, "'"));
  }
  MutexLock lock(mutex_);
  windows_[data] = window;
  return absl::OkStatus();
}

void NcclComm::DeregisterWindow(void* data) {
  AwaitIdle();
  const CurrentDevice current(options_.ordinal);
  MutexLock lock(mutex_);
  const auto window = windows_.find(data);
  if (window == windows_.end()) return;
  if (comm_ != nullptr) ncclCommWindowDeregister(comm_, window->second);
  windows_.erase(window);
}

}  // namespace tessera::internal
