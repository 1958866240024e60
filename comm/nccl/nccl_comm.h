#ifndef TESSERA_COMM_NCCL_NCCL_COMM_H_
#define TESSERA_COMM_NCCL_NCCL_COMM_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/device/cuda/cuda_stream.h"

namespace tessera::internal {

// An ncclComm_t of this rank, and what is under way on it.
//
// 1. It is non-blocking: none of its calls waits for other ranks. Whoever waits
//    for one to come to its end holds no lock, and looks at the clock.
// 2. The first failure ends it: what is enqueued is aborted, and comes to its
//    end on the streams; the ncclComm_t is not used any more.
//
// A borrowed one is not freed. It may be a blocking one.
//
// Thread-safe; one call of Launch or Split at a time.
class NcclComm final : public StreamMonitor {
 public:
  struct Options {
    int ordinal = 0;        // of the GPU
    std::string name = "";  // of the group, for errors
    int rank = 0;
    int size = 0;
    std::chrono::milliseconds timeout = {};  // at first
  };

  // COLLECTIVE over the ranks with this id. ERRORS: DeadlineExceeded where one
  // of them stays away past the timeout; Internal with NCCL's own text.
  static absl::StatusOr<std::shared_ptr<NcclComm>> Create(const NcclId& id,
                                                          Options options);
  static std::shared_ptr<NcclComm> Borrow(ncclComm_t comm, Options options) {
    return std::shared_ptr<NcclComm>(
        new NcclComm(comm, /*is_owned=*/false, std::move(options)));
  }
  // The ncclComm_t of those ranks that give the same color, in the order of
  // their keys; null for NCCL_SPLIT_NOCOLOR. It shares nothing with this one.
  // Waits for what is enqueued here, as NCCL wants it. COLLECTIVE over the
  // ranks of this one. REQUIRES: it is not borrowed. ERRORS: as Create; Aborted
  // where this has failed.
  absl::StatusOr<std::shared_ptr<NcclComm>> Split(int color, int key,
                                                  Options options);
  // Waits for what is enqueued, until its deadline. Not collective, though NCCL
  // may wait for ranks of this host to destroy theirs.
  ~NcclComm() override;

  // What a launch is called in errors: "all_reduce", number 3 of the group.
  struct Moment {
    absl::string_view what;  // a literal
    int64_t number;
  };
  // For what begins from now on.
  void SetTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Calls issue() in an NCCL group, ended whatever comes of it. What that
  // enqueues on `stream` has to come to its end within the timeout from now on.
  // ERRORS: Aborted where this has failed; DeadlineExceeded; Internal with
  // NCCL's own text.
  absl::Status Launch(cudaStream_t stream, const Moment& moment,
                      absl::FunctionRef<ncclResult_t(ncclComm_t)> issue);

  // Looks for errors that NCCL reports, and at the clock.
  absl::Status Check() override;
  bool is_owned() const { return is_owned_; }
  // OK, or Aborted with the reason.
  absl::Status status() const;
  // Fails what is pending and what comes with Aborted and this reason.
  void Abort(absl::string_view reason);

  // Tells NCCL, once, of memory that lives as long as this.
  absl::Status Register(void* data, int64_t bytes);
  // The same of a symmetric window, until DeregisterWindow, which waits for
  // what is enqueued. COLLECTIVE over the ranks. ERRORS: FailedPrecondition,
  // and nothing has failed, where NCCL has none between these GPUs.
  absl::Status RegisterWindow(void* data, int64_t bytes);
  void DeregisterWindow(void* data);

 private:
  using Clock = std::chrono::steady_clock;

  // An operation that is not known to have come to its end.
  struct Pending {
    cudaEvent_t event;  // behind it
    std::chrono::milliseconds timeout;
    Clock::time_point deadline;
    Moment moment;
  };

  NcclComm(ncclComm_t comm, bool is_owned, Options options)
      : options_(std::move(options)),
        is_owned_(is_owned),
        timeout_(options_.timeout),
        comm_(comm) {}

  absl::Status Init(const NcclId& id);
  // The calls of one NCCL group.
  ncclResult_t RunGroup(absl::FunctionRef<ncclResult_t(ncclComm_t)> issue)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns once NCCL is done with a call of `function` that gave `result`.
  absl::Status AwaitCall(absl::string_view function, ncclResult_t result);
  // The state that NCCL reports: ncclInProgress where it is not done yet.
  ncclResult_t AsyncError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginPending(cudaStream_t stream, const Moment& moment);
  absl::StatusOr<cudaEvent_t> IdleEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether there is an operation that has neither ended nor failed.
  bool IsBusy();
  void AwaitIdle();
  // Fails, unless it has failed before. Returns what it has failed with.
  absl::Status Fail(const absl::Status& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Destroy();

  const Options options_;
  const bool is_owned_;
  std::atomic<std::chrono::milliseconds> timeout_;

  mutable Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_);  // null: it has failed
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::vector<cudaEvent_t> idle_ ABSL_GUARDED_BY(mutex_);
  struct Registration {
    void* data;
    void* handle;
  };
  std::vector<Registration> registrations_ ABSL_GUARDED_BY(mutex_);
  // By the memory.
  std::map<void*, ncclWindow_t> windows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_NCCL_NCCL_COMM_H_
