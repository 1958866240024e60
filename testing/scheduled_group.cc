#include "tessera/testing/scheduled_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/local_algorithms.h"

namespace tessera::testing {

ScheduledGroup::ScheduledGroup(Scheduler& scheduler, int64_t id,
                               std::string name, std::vector<int> members)
    : scheduler_(scheduler),
      id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      num_gathers_(members_.size()),
      departures_(members_.size()) {}

absl::Status ScheduledGroup::status() const { return failure_; }

// Operations.

void ScheduledGroup::Enqueue(int rank, int64_t sequence,
                             absl::Span<const Collective> calls,
                             const ScheduledStream& stream) {
  Round& round = rounds_[sequence];
  round.parts.resize(size());
  Part& part = round.parts[rank];
  part.calls.assign(calls.begin(), calls.end());
  part.transfers.reserve(2 * calls.size());  // so that none of them moves
  for (Collective& call : part.calls) {
    for (absl::Span<const Transfer>* some : {&call.sends, &call.recvs}) {
      *some = part.transfers.emplace_back(some->begin(), some->end());
    }
  }
  part.stream = &stream;
  part.position = stream.pushed();
  CheckNobodyLeft(sequence, round);
}

bool ScheduledGroup::IsReady(int64_t sequence) const {
  const Round& round = rounds_.at(sequence);
  if (round.result.has_value() || !failure_.ok()) return true;
  return std::all_of(
      round.parts.begin(), round.parts.end(), [](const Part& part) {
        return part.stream != nullptr && part.stream->status().ok() &&
               part.stream->done() == part.position;
      });
}

absl::Status ScheduledGroup::Run(int64_t sequence) {
  Round& round = rounds_.at(sequence);
  if (!round.result.has_value()) {
    TESSERA_RETURN_IF_ERROR(failure_);
    round.result = DoAll(sequence, round);
  }
  const absl::Status result = *round.result;
  if (++round.runs == size()) rounds_.erase(sequence);
  return result;
}

absl::Status ScheduledGroup::DoAll(int64_t sequence, const Round& round) {
  std::vector<absl::Span<const Collective>> launches;
  for (const Part& part : round.parts) launches.push_back(part.calls);
  std::vector<const Collective*> calls;
  const std::string difference =
      tessera::internal::FindDisagreement(launches, members_, calls);
  if (!difference.empty()) {
    const std::string problem =
        absl::StrCat("ranks disagree at operation ", sequence, " of '", name_,
                     "': ", difference);
    Abort(problem);
    return absl::FailedPreconditionError(absl::StrCat("comm: ", problem));
  }
  for (size_t i = 0; i < calls.size(); i += size()) {
    tessera::internal::RunAlone(absl::MakeConstSpan(calls).subspan(i, size()));
  }
  return absl::OkStatus();
}

// Host-side exchanges.

absl::StatusOr<std::vector<std::string>> ScheduledGroup::HostAllGather(
    int rank, absl::string_view value) {
  TESSERA_RETURN_IF_ERROR(failure_);
  const int64_t number = num_gathers_[rank]++;
  if (number == static_cast<int64_t>(gathers_.size())) {
    gathers_.emplace_back(size());
  }
  gathers_[number][rank] = std::string(value);
  CheckNobodyLeft(number, gathers_[number]);
  const auto is_complete = [this, number] {
    return std::all_of(gathers_[number].begin(), gathers_[number].end(),
                       [](const auto& given) { return given.has_value(); });
  };
  TESSERA_RETURN_IF_ERROR(scheduler_.BlockUntil(
      [&] { return is_complete() || !failure_.ok(); },
      absl::StrCat("waits at ", Where("host_all_gather", number))));
  if (!is_complete()) return failure_;
  std::vector<std::string> values;
  for (const auto& given : gathers_[number]) values.push_back(*given);
  return values;
}

// Failures.

void ScheduledGroup::Abort(absl::string_view reason) {
  Fail(absl::StrCat("'", name_, "' is aborted: ", reason));
}

void ScheduledGroup::Leave(int world_rank, absl::string_view reason) {
  const auto member = std::find(members_.begin(), members_.end(), world_rank);
  if (member == members_.end()) return;
  departures_[member - members_.begin()] = std::string(reason);
  for (const auto& [sequence, round] : rounds_) {
    CheckNobodyLeft(sequence, round);
  }
  for (size_t i = 0; i < gathers_.size(); ++i) {
    CheckNobodyLeft(static_cast<int64_t>(i), gathers_[i]);
  }
}

void ScheduledGroup::CheckNobodyLeft(int64_t sequence, const Round& round) {
  std::vector<bool> here;
  absl::string_view what;
  for (const Part& part : round.parts) {
    here.push_back(part.stream != nullptr);
    if (here.back()) what = CollectiveKindName(part.calls.front().kind);
  }
  CheckNobodyLeft(Where(what, sequence), here);
}

void ScheduledGroup::CheckNobodyLeft(int64_t number, const Gather& gather) {
  std::vector<bool> here;
  for (const auto& given : gather) here.push_back(given.has_value());
  CheckNobodyLeft(Where("host_all_gather", number), here);
}

void ScheduledGroup::CheckNobodyLeft(absl::string_view where,
                                     const std::vector<bool>& here) {
  for (int i = 0; i < size(); ++i) {
    if (departures_[i].empty() || here[i]) continue;
    Fail(absl::StrCat("rank ", members_[i], " has left before ", where, ": ",
                      departures_[i]));
  }
}

void ScheduledGroup::Fail(absl::string_view problem) {
  if (failure_.ok()) {
    failure_ = absl::AbortedError(absl::StrCat("comm: ", problem));
  }
}

std::string ScheduledGroup::Where(absl::string_view what,
                                  int64_t number) const {
  return absl::StrCat(what, ", operation ", number, " of '", name_, "'");
}

}  // namespace tessera::testing
