#include "tessera/comm/mpi/mpi_group.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tessera/base/deadline.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/calls.h"
#include "tessera/comm/mpi/call_codec.h"

namespace tessera::internal {
namespace {

// Reports are cut to what MPI sends at once, whether or not the receiver looks.
constexpr size_t kMaxReportBytes = 1024;

// What others report is looked for so often at most outside of waits: a look
// may give the core away.
constexpr std::chrono::milliseconds kLookEvery{1};

// What one wait for others takes: turns at MPI, from some on with the core left
// to others in between, and short sleeps after many.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  // Whether this is a turn at rare things: one in many.
  bool IsRareTurn() const { return turns_ % kRare == kRare - 1; }
  // False once the time is over.
  bool TakeTurn() {
    if (++turns_ < kSpins) return true;
    if (turns_ == kSpins) deadline_ = DeadlineAfter(Clock::now(), timeout_);
    if (turns_ <= kYields) {
      std::this_thread::yield();
      return true;
    }
    std::this_thread::sleep_for(kSleep);
    return Clock::now() < deadline_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // Some tens of microseconds, which a message of 64 KiB and its answer take:
  // where other programs run, a core that is left may be back only after
  // milliseconds. MPI leaves it to others itself where it knows that it has to.
  static constexpr int kSpins = 1024;
  static constexpr int kYields = 2000;
  static constexpr int kRare = 16;
  static constexpr std::chrono::microseconds kSleep{50};

  const std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;  // known once the first turns are over
  int turns_ = 0;
};

using Launches = absl::InlinedVector<absl::Span<const Collective>, 32>;

std::string EncodeReport(const absl::Status& failure) {
  return absl::StrCat(static_cast<int>(failure.code()), " ", failure.message())
      .substr(0, kMaxReportBytes);
}

absl::Status DecodeReport(absl::string_view report) {
  const absl::string_view code = report.substr(0, report.find(' '));
  int number = 0;
  if (!absl::SimpleAtoi(code, &number) || code.size() == report.size()) {
    return absl::InternalError(absl::StrCat("comm: found report ", report));
  }
  return absl::Status(static_cast<absl::StatusCode>(number),
                      report.substr(code.size() + 1));
}

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<MpiTransport> transport, int64_t id,
                   std::string name, std::vector<int> members, int rank)
    : transport_(std::move(transport)),
      id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      rank_(rank),
      timeout_(transport_->options().timeout) {}

absl::Status MpiGroup::Run(int, absl::Span<const Collective> calls) {
  TESSERA_RETURN_IF_ERROR(KnownFailure());
  const Moment moment = {CollectiveKindName(calls.front().kind),
                         num_operations_++};
  return Fail(RunCalls(calls, moment));
}

absl::Status MpiGroup::RunCalls(absl::Span<const Collective> calls,
                                const Moment& moment) {
  bool has_met = !MustMeet(calls);
  const auto move = [&](absl::Span<const Message> sends,
                        absl::Span<const Message> recvs) {
    if (has_met) return Move(sends, recvs, moment);
    has_met = true;
    return MeetAndMove(calls, sends, recvs, moment);
  };
  for (const Collective& call : calls) {
    TESSERA_RETURN_IF_ERROR(RunCall(call, rank_, size(), move, *memory_));
    memory_->copies.clear();
  }
  return has_met ? absl::OkStatus() : move({}, {});
}

bool MpiGroup::MustMeet(absl::Span<const Collective> calls) const {
  return transport_->options().check ||
         std::any_of(calls.begin(), calls.end(), [](const Collective& call) {
           return call.kind == CollectiveKind::kBarrier;
         });
}

absl::Status MpiGroup::MeetAndMove(absl::Span<const Collective> calls,
                                   absl::Span<const Message> sends,
                                   absl::Span<const Message> recvs,
                                   const Moment& moment) {
  if (letters_ == nullptr) letters_ = std::make_shared<Letters>(size());
  const bool check = transport_->options().check;
  const std::string head = check ? EncodeCalls(calls, size()) : "";
  letters_->Begin(head);
  Messages later_sends;
  for (const Message& m : sends) {
    if (!letters_->Add(m)) later_sends.push_back(m);
  }
  TESSERA_RETURN_IF_ERROR(ExchangeLetters(head, moment));
  if (check) TESSERA_RETURN_IF_ERROR(Compare(calls, head, moment));
  Messages later_recvs;
  for (const Message& m : recvs) {
    if (!letters_->Take(m)) later_recvs.push_back(m);
  }
  return Move(later_sends, later_recvs, moment);
}

absl::Status MpiGroup::ExchangeLetters(absl::string_view head,
                                       const Moment& moment) {
  const int tag = Tag(MpiChannel::kMeeting);
  MpiBatch batch(*transport_);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    TESSERA_RETURN_IF_ERROR(batch.ReceiveOne(members_[peer], tag,
                                             letters_->Received(peer),
                                             Letters::kMostBytes, letters_));
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    TESSERA_RETURN_IF_ERROR(
        batch.SendOne(members_[peer], tag, letters_->Sent(peer), letters_));
  }
  if (head.size() > Letters::kHeadBytes) {
    const auto own = std::make_shared<const std::string>(head);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      TESSERA_RETURN_IF_ERROR(batch.Send(members_[peer], tag, own));
    }
  }
  return Finish(batch, moment);
}

absl::Status MpiGroup::Compare(absl::Span<const Collective> calls,
                               absl::string_view head, const Moment& moment) {
  TESSERA_ASSIGN_OR_RETURN(const std::string difference,
                           FindDifference(calls, head, moment));
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "comm: ranks disagree at ", Where(moment), ": ", difference));
}

absl::StatusOr<std::string> MpiGroup::FindDifference(
    absl::Span<const Collective> calls, absl::string_view head,
    const Moment& moment) {
  // Bytes that are equal stand for equal calls: this rank's are those of all.
  const bool may_differ = MayDiffer(calls) && head != agreed_;
  const bool all_have_head = letters_->AllHave(head, rank_);
  if (all_have_head && !may_differ) return "";
  Launches launches(size(), calls);
  std::vector<const Collective*> by_call;
  std::deque<DecodedCalls> decoded;
  if (!all_have_head) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> heads,
                             AllHeads(head, moment));
    for (int i = 0; i < size(); ++i) {
      if (heads[i] == head) continue;
      TESSERA_RETURN_IF_ERROR(decoded.emplace_back().Decode(heads[i]));
      launches[i] = decoded.back().calls();
    }
  }
  const bool is_same = decoded.empty();
  if (is_same && !may_differ) return "";
  std::string difference = FindDisagreement(launches, members_, by_call);
  if (is_same && difference.empty()) agreed_ = std::string(head);
  return difference;
}

absl::StatusOr<std::vector<std::string>> MpiGroup::AllHeads(
    absl::string_view head, const Moment& moment) {
  const auto heads = std::make_shared<std::vector<std::string>>(size());
  MpiBatch batch(*transport_);
  for (int peer = 0; peer < size(); ++peer) {
    std::string& its_head = (*heads)[peer];
    if (peer == rank_) {
      its_head = std::string(head);
    } else if (letters_->HasHead(peer)) {
      its_head = std::string(letters_->Head(peer));
    } else {
      its_head.resize(letters_->HeadBytes(peer));
      TESSERA_RETURN_IF_ERROR(
          batch.ReceiveOne(members_[peer], Tag(MpiChannel::kMeeting),
                           its_head.data(), letters_->HeadBytes(peer), heads));
    }
  }
  TESSERA_RETURN_IF_ERROR(Finish(batch, moment));
  return std::move(*heads);
}

absl::StatusOr<std::vector<std::string>> MpiGroup::HostAllGather(
    absl::string_view value) {
  TESSERA_RETURN_IF_ERROR(status());
  if (static_cast<int64_t>(value.size()) >
      transport_->options().max_message_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: host_all_gather of '", name_, "': ", value.size(),
                     " bytes are more than one message"));
  }
  return Exchange(Everyone(), MpiChannel::kHost, value,
                  {"host_all_gather", num_host_calls_++});
}

absl::StatusOr<std::shared_ptr<MpiGroup>> MpiGroup::MakeGroup(
    absl::Span<const int> members, absl::string_view name) {
  TESSERA_RETURN_IF_ERROR(status());
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<std::string> free,
      Exchange(members, MpiChannel::kHost, absl::StrCat(transport_->FreeId()),
               {"subgroup", num_host_calls_++}));
  int64_t id = 0;
  for (const std::string& text : free) {
    int64_t its_id = 0;
    if (!absl::SimpleAtoi(text, &its_id)) {
      return absl::InternalError(
          absl::StrCat("comm: subgroup '", name, "' of '", name_,
                       "': want a number, found '", text, "'"));
    }
    id = std::max(id, its_id);
  }
  if (!transport_->HasTags(id)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "comm: subgroup '", name, "': MPI has no tags for ", id, " groups"));
  }
  transport_->TakeId(id);
  std::vector<int> world_ranks;
  int index = 0;
  for (int member : members) {
    if (member == rank_) index = static_cast<int>(world_ranks.size());
    world_ranks.push_back(members_[member]);
  }
  return std::make_shared<MpiGroup>(transport_, id, std::string(name),
                                    std::move(world_ranks), index);
}

absl::StatusOr<std::vector<std::string>> MpiGroup::Exchange(
    absl::Span<const int> members, MpiChannel channel, absl::string_view value,
    const Moment& moment) {
  absl::StatusOr<std::vector<std::string>> given =
      TryToExchange(members, channel, value, moment);
  if (!given.ok()) return Fail(given.status());
  return given;
}

absl::StatusOr<std::vector<std::string>> MpiGroup::TryToExchange(
    absl::Span<const int> members, MpiChannel channel, absl::string_view value,
    const Moment& moment) {
  const auto own = std::make_shared<const std::string>(value);
  const auto given = std::make_shared<std::vector<std::string>>(members.size());
  std::vector<int> awaited;  // indices in `members`
  MpiBatch batch(*transport_);
  for (int i = 0; i < static_cast<int>(members.size()); ++i) {
    if (members[i] == rank_) {
      (*given)[i] = *own;
      continue;
    }
    awaited.push_back(i);
    TESSERA_RETURN_IF_ERROR(
        batch.Send(members_[members[i]], Tag(channel), own));
  }
  for (Patience patience(timeout_);;) {
    for (auto i = awaited.begin(); i != awaited.end();) {
      TESSERA_ASSIGN_OR_RETURN(
          const bool there,
          batch.ReceiveIfThere(members_[members[*i]], Tag(channel),
                               (*given)[*i], given));
      i = there ? awaited.erase(i) : i + 1;
    }
    TESSERA_ASSIGN_OR_RETURN(const bool done, batch.Test());
    if (done && awaited.empty()) return std::move(*given);
    if (patience.IsRareTurn()) TESSERA_RETURN_IF_ERROR(LookForFailure());
    if (patience.TakeTurn()) continue;
    std::vector<int> missing = batch.Unfinished();
    for (int i : awaited) missing.push_back(members_[members[i]]);
    return TimeoutOf(std::move(missing), moment);
  }
}

absl::Status MpiGroup::Move(absl::Span<const Message> sends,
                            absl::Span<const Message> recvs,
                            const Moment& moment) {
  MpiBatch batch(*transport_);
  const int tag = Tag(MpiChannel::kData);
  for (const Message& m : recvs) {
    TESSERA_RETURN_IF_ERROR(
        batch.Receive(members_[m.peer], tag, m.data, m.bytes, memory_));
  }
  for (const Message& m : sends) {
    TESSERA_RETURN_IF_ERROR(
        batch.Send(members_[m.peer], tag, m.data, m.bytes, memory_));
  }
  return Finish(batch, moment);
}

absl::Status MpiGroup::Finish(MpiBatch& batch, const Moment& moment) {
  if (batch.empty()) return absl::OkStatus();
  for (Patience patience(timeout_);;) {
    TESSERA_ASSIGN_OR_RETURN(const bool done, batch.Test());
    if (done) return absl::OkStatus();
    if (patience.IsRareTurn()) TESSERA_RETURN_IF_ERROR(LookForFailure());
    if (patience.TakeTurn()) continue;
    return TimeoutOf(batch.Unfinished(), moment);
  }
}

void MpiGroup::Abort(absl::string_view reason) {
  // Every status this can come from is what the group has failed with.
  (void)Fail(absl::AbortedError(
      absl::StrCat("comm: '", name_, "' is aborted: ", reason)));
}

absl::Status MpiGroup::TimeoutOf(std::vector<int> missing,
                                 const Moment& moment) const {
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return absl::DeadlineExceededError(absl::StrCat(
      "comm: ", missing.size() == 1 ? "rank " : "ranks ",
      absl::StrJoin(missing, ","), " did not come to ", moment.what, ", ",
      Where(moment), ", within ", timeout_.load().count(), " ms"));
}

absl::Status MpiGroup::Fail(const absl::Status& failure) {
  if (failure.ok()) return failure;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    failure_ = failure;
  }
  const auto report =
      std::make_shared<const std::string>(EncodeReport(failure));
  MpiBatch batch(*transport_);
  for (int member : members_) {
    if (member == members_[rank_]) continue;
    // Whom MPI does not reach cannot be told.
    (void)batch.Send(member, Tag(MpiChannel::kFailure), report);
  }
  return failure;
}

absl::Status MpiGroup::Note(const absl::Status& failure) {
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = failure;
  return failure_;
}

absl::Status MpiGroup::KnownFailure() {
  MutexLock lock(mutex_);
  return failure_;
}

absl::Status MpiGroup::LookForFailure() {
  TESSERA_RETURN_IF_ERROR(KnownFailure());
  looked_at_ = std::chrono::steady_clock::now();
  TESSERA_ASSIGN_OR_RETURN(
      const std::optional<std::string> report,
      MpiReceiveFromAny(*transport_, Tag(MpiChannel::kFailure)));
  return report.has_value() ? Note(DecodeReport(*report)) : absl::OkStatus();
}

absl::Status MpiGroup::status() {
  const bool is_time =
      std::chrono::steady_clock::now() - looked_at_.load() >= kLookEvery;
  const absl::Status failure = is_time ? LookForFailure() : KnownFailure();
  if (failure.ok() || absl::IsAborted(failure)) return failure;
  return absl::AbortedError(absl::StrCat(
      "comm: '", name_,
      "' is aborted: ", absl::StripPrefix(failure.message(), "comm: ")));
}

std::vector<int> MpiGroup::Everyone() const {
  std::vector<int> all(size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string MpiGroup::Where(const Moment& moment) const {
  return absl::StrCat("operation ", moment.number, " of '", name_, "'");
}

}  // namespace tessera::internal
