#include "tessera/comm/local/local_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/local_algorithms.h"

namespace tessera::internal {
namespace {

// Up to this much work the last member to come does for all, while the others
// sleep: waking them to do it, and once more at the end, would take longer.
constexpr int64_t kMaxBytesOfOne = 256 << 10;

// How often a waiting member lets others run before it sleeps: a few
// microseconds. Waking a thread costs more than several turns of this, whether
// or not there is a core for every rank.
constexpr int kYields = 8;

}  // namespace

LocalGroup::LocalGroup(int64_t id, std::string name, std::vector<int> members,
                       std::chrono::milliseconds timeout)
    : id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      timeout_(timeout),
      operations_(members_.size()),
      gathers_(members_.size()),
      passes_(members_.size()),
      calls_(members_.size(), nullptr),
      given_(members_.size()),
      departures_(members_.size()) {}

absl::Status LocalGroup::Run(int rank, const Collective& call) {
  TESSERA_ASSIGN_OR_RETURN(const bool ended, Start(rank, call));
  if (ended) return absl::OkStatus();
  RunPart(calls_, rank);
  Pass();
  return absl::OkStatus();
}

absl::StatusOr<bool> LocalGroup::Start(int rank, const Collective& call) {
  MutexLock lock(mutex_);
  TESSERA_RETURN_IF_ERROR(
      Arrive(operations_, rank, CollectiveKindName(call.kind)));
  calls_[rank] = &call;
  if (!AllHere(operations_)) {
    TESSERA_RETURN_IF_ERROR(Await(operations_));
    return last_ran_all_;
  }
  const std::string difference = FindDisagreement(calls_, members_);
  if (!difference.empty()) {
    return Fail(absl::StatusCode::kFailedPrecondition,
                absl::StrCat("ranks disagree at ", Where(operations_), ": ",
                             difference));
  }
  last_ran_all_ = TotalBytes(calls_) <= kMaxBytesOfOne;
  if (last_ran_all_) RunAlone(calls_);
  Complete(operations_);
  return last_ran_all_;
}

void LocalGroup::Pass() {
  MutexLock lock(mutex_);
  if (++passes_.num_here == size()) return Complete(passes_);
  const int64_t round = passes_.round;
  YieldDuring(round, passes_);
  while (passes_.round == round) changed_.Wait(mutex_);
}

absl::StatusOr<std::vector<std::string>> LocalGroup::HostAllGather(
    int rank, absl::string_view value) {
  MutexLock lock(mutex_);
  TESSERA_RETURN_IF_ERROR(Arrive(gathers_, rank, "host_all_gather"));
  given_[rank] = std::string(value);
  if (AllHere(gathers_)) {
    gathered_ = given_;
    Complete(gathers_);
  } else {
    TESSERA_RETURN_IF_ERROR(Await(gathers_));
  }
  // Stays until the next round is complete, for which this member must come.
  return gathered_;
}

absl::Status LocalGroup::Arrive(Meeting& meeting, int rank,
                                absl::string_view what) {
  TESSERA_RETURN_IF_ERROR(StatusLocked());
  meeting.what = what;
  TESSERA_RETURN_IF_ERROR(CheckNobodyLeft(meeting));
  meeting.here[rank] = true;
  ++meeting.num_here;
  return absl::OkStatus();
}

void LocalGroup::Complete(Meeting& meeting) {
  std::fill(meeting.here.begin(), meeting.here.end(), false);
  meeting.num_here = 0;
  ++meeting.round;
  changed_.NotifyAll();
}

void LocalGroup::YieldDuring(int64_t round, const Meeting& meeting) {
  mutex_.Unlock();
  for (int i = 0; i < kYields && meeting.round == round; ++i) {
    std::this_thread::yield();
  }
  mutex_.Lock();
}

absl::Status LocalGroup::Await(Meeting& meeting) {
  const int64_t round = meeting.round;
  YieldDuring(round, meeting);
  const CondVar::Clock::time_point deadline = CondVar::Clock::now() + timeout_;
  while (meeting.round == round && failure_.ok()) {
    if (!changed_.WaitUntil(mutex_, deadline) && meeting.round == round) {
      return Fail(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat(Missing(meeting), " did not come to ",
                               meeting.what, ", ", Where(meeting), ", within ",
                               timeout_.count(), " ms"));
    }
  }
  return meeting.round != round ? absl::OkStatus() : failure_;
}

void LocalGroup::Abort(absl::string_view reason) {
  MutexLock lock(mutex_);
  // Every status this can come from is worded by Fail.
  (void)Fail(absl::StatusCode::kAborted,
             absl::StrCat("'", name_, "' is aborted: ", reason));
}

void LocalGroup::Leave(int world_rank, absl::string_view reason) {
  const auto member = std::find(members_.begin(), members_.end(), world_rank);
  if (member == members_.end()) return;
  MutexLock lock(mutex_);
  departures_[member - members_.begin()] = std::string(reason);
  for (Meeting* meeting : {&operations_, &gathers_}) {
    if (meeting->num_here > 0) (void)CheckNobodyLeft(*meeting);
  }
}

absl::Status LocalGroup::CheckNobodyLeft(const Meeting& meeting) {
  for (int i = 0; i < size(); ++i) {
    if (departures_[i].empty() || meeting.here[i]) continue;
    return Fail(
        absl::StatusCode::kAborted,
        absl::StrCat("rank ", members_[i], " has left before ", meeting.what,
                     ", ", Where(meeting), ": ", departures_[i]));
  }
  return absl::OkStatus();
}

absl::Status LocalGroup::Fail(absl::StatusCode code,
                              absl::string_view problem) {
  if (failure_.ok()) {
    failure_ = absl::Status(code, absl::StrCat("comm: ", problem));
    changed_.NotifyAll();
  }
  return failure_;
}

absl::Status LocalGroup::status() const {
  MutexLock lock(mutex_);
  return StatusLocked();
}

absl::Status LocalGroup::StatusLocked() const {
  if (failure_.ok() || absl::IsAborted(failure_)) return failure_;
  return absl::AbortedError(absl::StrCat(
      "comm: '", name_,
      "' is aborted: ", absl::StripPrefix(failure_.message(), "comm: ")));
}

std::string LocalGroup::Where(const Meeting& meeting) const {
  return absl::StrCat("operation ", meeting.round.load(), " of '", name_, "'");
}

std::string LocalGroup::Missing(const Meeting& meeting) const {
  std::vector<int> missing;
  for (int i = 0; i < size(); ++i) {
    if (!meeting.here[i]) missing.push_back(members_[i]);
  }
  return absl::StrCat(missing.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(missing, ","));
}

}  // namespace tessera::internal
