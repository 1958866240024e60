#include "tessera/comm/local/local_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tessera/base/deadline.h"
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

// How long a member waits before it looks, over and over, whether it does so in
// vain. Most waits are shorter.
constexpr std::chrono::milliseconds kLookEvery{100};

// Waits a moment for `count` to exceed `passed`, without sleeping.
bool YieldUntilAbove(int64_t passed, const std::atomic<int64_t>& count) {
  for (int i = 0; i < kYields && count <= passed; ++i) {
    std::this_thread::yield();
  }
  return count > passed;
}

}  // namespace

void LocalGroup::Parts::Reset(bool any) {
  for (std::atomic<bool>& taken : taken_) taken = !any;
  left_ = static_cast<int>(taken_.size());
}

int LocalGroup::Parts::Take(int rank) {
  const int size = static_cast<int>(taken_.size());
  for (int i = 0; i < size; ++i) {
    const int part = (rank + i) % size;
    if (!taken_[part] && !taken_[part].exchange(true)) return part;
  }
  return -1;
}

LocalGroup::LocalGroup(int64_t id, std::string name, std::vector<int> members,
                       std::chrono::milliseconds timeout,
                       std::shared_ptr<WaitGraph> waits,
                       std::shared_ptr<LocalGroup> parent)
    : id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      waits_(std::move(waits)),
      parent_(std::move(parent)),
      operations_(members_.size()),
      gathers_(members_.size()),
      given_calls_(members_.size()),
      parts_(members_.size()),
      entered_(members_.size(), false),
      timeouts_(members_.size(), timeout),
      given_(members_.size()),
      departures_(members_.size()) {
  for (Meeting* meeting : {&operations_, &gathers_}) {
    for (int i = 0; i < size(); ++i) meeting->places[i].rank = members_[i];
  }
}

void LocalGroup::Enter(int rank, const Stream& stream) {
  MutexLock lock(mutex_);
  entered_[rank] = true;
  const Place program = std::exchange(operations_.places[rank],
                                      {members_[rank], stream.progress()});
  waits_->Replace(&operations_, program, operations_.places[rank]);
}

void LocalGroup::SetTimeout(int rank, std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  timeouts_[rank] = timeout;
}

std::chrono::milliseconds LocalGroup::TimeoutOf(int rank) const {
  MutexLock lock(mutex_);
  return timeouts_[rank];
}

absl::Status LocalGroup::Run(int rank, absl::Span<const Collective> calls) {
  TESSERA_ASSIGN_OR_RETURN(const int64_t round, ArriveAtOperation(rank, calls));
  TESSERA_RETURN_IF_ERROR(Await(operations_, round, rank));
  for (int part = parts_.Take(rank); part >= 0; part = parts_.Take(rank)) {
    for (int i = 0; i < num_calls(); ++i) RunPart(CallsAt(i), part);
    if (!parts_.Finish()) continue;
    MutexLock lock(mutex_);
    ended_ = round + 1;
    changed_.NotifyAll();
  }
  AwaitEnd(round);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LocalGroup::ArriveAtOperation(
    int rank, absl::Span<const Collective> calls) {
  MutexLock lock(mutex_);
  TESSERA_RETURN_IF_ERROR(
      Arrive(operations_, rank, CollectiveKindName(calls.front().kind)));
  const int64_t round = operations_.round;
  given_calls_[rank] = calls;
  if (AllHere(operations_)) TESSERA_RETURN_IF_ERROR(StartOperation());
  return round;
}

absl::Status LocalGroup::StartOperation() {
  const std::string difference =
      FindDisagreement(given_calls_, members_, calls_);
  if (!difference.empty()) {
    return Fail(absl::StatusCode::kFailedPrecondition,
                absl::StrCat("ranks disagree at ", Where(operations_), ": ",
                             difference));
  }
  int64_t bytes = 0;
  for (int i = 0; i < num_calls(); ++i) bytes += TotalBytes(CallsAt(i));
  const bool in_parts = bytes > kMaxBytesOfOne;
  parts_.Reset(in_parts);
  if (!in_parts) {
    for (int i = 0; i < num_calls(); ++i) RunAlone(CallsAt(i));
    ended_ = operations_.round + 1;
  }
  Complete(operations_);
  return absl::OkStatus();
}

void LocalGroup::AwaitEnd(int64_t round) {
  if (YieldUntilAbove(round, ended_)) return;
  MutexLock lock(mutex_);
  while (ended_ <= round) changed_.Wait(mutex_);
}

absl::StatusOr<std::vector<std::string>> LocalGroup::HostAllGather(
    int rank, absl::string_view value) {
  TESSERA_ASSIGN_OR_RETURN(const int64_t round, ArriveAtGather(rank, value));
  TESSERA_RETURN_IF_ERROR(Await(gathers_, round, rank));
  // Stays until the next round is complete, for which this member must come.
  MutexLock lock(mutex_);
  return gathered_;
}

absl::StatusOr<int64_t> LocalGroup::ArriveAtGather(int rank,
                                                   absl::string_view value) {
  MutexLock lock(mutex_);
  TESSERA_RETURN_IF_ERROR(Arrive(gathers_, rank, "host_all_gather"));
  const int64_t round = gathers_.round;
  given_[rank] = std::string(value);
  if (AllHere(gathers_)) {
    gathered_ = given_;
    Complete(gathers_);
  }
  return round;
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
  Unwatch(meeting);
  changed_.NotifyAll();
}

absl::Status LocalGroup::Await(Meeting& meeting, int64_t round, int rank) {
  if (YieldUntilAbove(round, meeting.round)) return absl::OkStatus();
  const CondVar::Clock::time_point begin = CondVar::Clock::now();
  const std::chrono::milliseconds timeout = TimeoutOf(rank);
  const CondVar::Clock::time_point deadline = DeadlineAfter(begin, timeout);
  for (auto look = begin + kLookEvery;; look += kLookEvery) {
    Place here;
    {
      MutexLock lock(mutex_);
      if (AwaitUntil(meeting, round, std::min(look, deadline))) break;
      if (look >= deadline) {
        return Fail(absl::StatusCode::kDeadlineExceeded,
                    absl::StrCat(Missing(meeting), " did not come to ",
                                 meeting.what, ", ", Where(meeting),
                                 ", within ", timeout.count(), " ms"));
      }
      if (look == begin + kLookEvery) Watch(meeting, rank);
      here = meeting.places[rank];
    }
    if (!FailIfUnjoinable()) waits_->BreakCycle(here);
  }
  if (meeting.round > round) return absl::OkStatus();
  waits_->AwaitBreak();
  MutexLock lock(mutex_);
  return failure_;
}

bool LocalGroup::AwaitUntil(Meeting& meeting, int64_t round,
                            CondVar::Clock::time_point time) {
  bool in_time = true;
  while (meeting.round <= round && failure_.ok() && in_time) {
    in_time = changed_.WaitUntil(mutex_, time);
  }
  return meeting.round > round || !failure_.ok();
}

bool LocalGroup::FailIfUnjoinable() {
  for (int i = 0; i < size(); ++i) {
    // No lock of a child is held when its parent is asked.
    const absl::Status why = WhyUnjoinable(members_[i]);
    if (why.ok()) continue;
    MutexLock lock(mutex_);
    for (const Meeting* meeting : {&operations_, &gathers_}) {
      if (meeting->num_here == 0 || meeting->here[i] || entered_[i]) continue;
      // Every status this can come from is worded by Fail.
      (void)Fail(
          absl::StatusCode::kAborted,
          absl::StrCat("rank ", members_[i], " cannot join '", name_,
                       "': ", absl::StripPrefix(why.message(), "comm: ")));
    }
  }
  MutexLock lock(mutex_);
  return !failure_.ok();
}

absl::Status LocalGroup::WhyUnjoinable(int world_rank) {
  if (parent_ == nullptr || HasEntered(world_rank)) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(parent_->status());
  return parent_->WhyUnjoinable(world_rank);
}

bool LocalGroup::HasEntered(int world_rank) {
  MutexLock lock(mutex_);
  const auto member = std::find(members_.begin(), members_.end(), world_rank);
  return entered_[member - members_.begin()];
}

void LocalGroup::Watch(Meeting& meeting, int rank) {
  std::vector<Place> missing;
  for (int i = 0; i < size(); ++i) {
    if (!meeting.here[i]) missing.push_back(meeting.places[i]);
  }
  waits_->Add({meeting.places[rank], shared_from_this(), &meeting,
               absl::StrCat(meeting.what, ", ", Where(meeting)),
               std::move(missing)});
  meeting.is_watched = true;
}

void LocalGroup::Unwatch(Meeting& meeting) {
  if (!meeting.is_watched) return;
  waits_->RemoveAll(&meeting);
  meeting.is_watched = false;
}

void LocalGroup::BreakCycle(absl::string_view description) {
  MutexLock lock(mutex_);
  // Every status this can come from is worded by Fail.
  (void)Fail(absl::StatusCode::kFailedPrecondition,
             absl::StrCat("ranks wait for each other: ", description));
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
  LeaveAs(static_cast<int>(member - members_.begin()), reason);
}

void LocalGroup::Forget(int rank) {
  LeaveAs(rank, "it has destroyed its communicator");
}

void LocalGroup::LeaveAs(int rank, absl::string_view reason) {
  MutexLock lock(mutex_);
  if (departures_[rank].empty()) departures_[rank] = std::string(reason);
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
    Unwatch(operations_);
    Unwatch(gathers_);
    changed_.NotifyAll();
  }
  return failure_;
}

absl::Status LocalGroup::status() {
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
