#include "tessera/testing/scheduled_world.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/local_algorithms.h"
#include "tessera/testing/scheduled_device.h"

namespace tessera::testing {

class ScheduledWorld::Member final : public Communicator {
 public:
  Member(ScheduledWorld& world, ScheduledGroup& group, std::vector<int> members,
         int rank, absl::string_view name, ScheduledStream& stream,
         std::shared_ptr<CommLog> log)
      : Communicator(std::move(members), rank, name, stream, std::move(log)),
        world_(world),
        group_(group),
        scheduled_(stream) {}

  absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view value) override {
    return group_.HostAllGather(rank(), value);
  }

  void Abort(const absl::Status& reason) override {
    if (size() == 1) return;
    group_.Abort(
        absl::StrCat("by rank ", world_rank(), ": ", reason.ToString()));
  }

 private:
  int world_rank() const { return members()[rank()]; }

  absl::Status Enqueue(absl::Span<const Collective> calls,
                       int64_t sequence) override;
  absl::StatusOr<std::unique_ptr<Communicator>> MakeSubgroup(
      absl::Span<const int> members, absl::string_view name,
      Stream& stream) override;

  ScheduledWorld& world_;
  ScheduledGroup& group_;
  ScheduledStream& scheduled_;
};

absl::Status ScheduledWorld::Member::Enqueue(absl::Span<const Collective> calls,
                                             int64_t sequence) {
  TESSERA_RETURN_IF_ERROR(group_.status());
  const std::string name = absl::StrCat(CollectiveKindName(calls.front().kind),
                                        " of '", this->name(), "'");
  world_.issued_[world_rank()].push_back(
      {&group_, sequence, calls.front().kind});
  group_.Enqueue(rank(), sequence, calls, scheduled_);

  std::vector<MemoryRange> reads;
  std::vector<MemoryRange> writes;
  for (const Collective& call : calls) {
    tessera::internal::AppendRanges(call, reads, writes);
  }
  return scheduled_.LaunchWhen(
      {.name = name, .reads = reads, .writes = writes},
      [&group = group_, sequence] { return group.IsReady(sequence); },
      [&group = group_, sequence,
       this_rank = world_rank()](const absl::Status& so_far) {
        if (so_far.ok()) return group.Run(sequence);
        group.Abort(absl::StrCat("the stream of rank ", this_rank,
                                 " failed before operation ", sequence, ": ",
                                 so_far.message()));
        return so_far;
      });
}

absl::StatusOr<std::unique_ptr<Communicator>>
ScheduledWorld::Member::MakeSubgroup(absl::Span<const int> members,
                                     absl::string_view name, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(group_.status());
  return world_.JoinGroup(group_.id(), SubsetOf(members).members, world_rank(),
                          name, stream, log());
}

absl::StatusOr<std::unique_ptr<Communicator>> ScheduledWorld::Join(
    int rank, Stream& stream) {
  std::vector<int> all(num_ranks_);
  std::iota(all.begin(), all.end(), 0);
  return JoinGroup(kNoParent, std::move(all), rank, "world", stream,
                   std::make_shared<CommLog>());
}

absl::StatusOr<std::unique_ptr<Communicator>> ScheduledWorld::JoinGroup(
    int64_t parent, std::vector<int> members, int rank, absl::string_view name,
    Stream& stream, std::shared_ptr<CommLog> log) {
  auto* const scheduled = dynamic_cast<ScheduledStream*>(&stream);
  if (scheduled == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: '", name, "' wants a stream of a scheduled device, found '",
        stream.name(), "' of ", stream.device().name()));
  }
  const int n = joined_[{parent, members, rank}]++;
  std::unique_ptr<ScheduledGroup>& group = groups_[{parent, members, n}];
  if (group == nullptr) {
    group = std::make_unique<ScheduledGroup>(
        scheduler_, static_cast<int64_t>(groups_.size()) - 1, std::string(name),
        members);
    for (const auto& [left, reason] : departures_) group->Leave(left, reason);
  }
  const auto index =
      static_cast<int>(absl::c_find(members, rank) - members.begin());
  return std::make_unique<Member>(*this, *group, std::move(members), index,
                                  name, *scheduled, std::move(log));
}

void ScheduledWorld::Leave(int rank, const absl::Status& status) {
  const std::string reason =
      status.ok() ? "its program has ended" : status.ToString();
  departures_[rank] = reason;
  for (const auto& [key, group] : groups_) group->Leave(rank, reason);
}

// Issue order.

std::string ScheduledWorld::Issue::ToString() const {
  return absl::StrCat(CollectiveKindName(kind), ", operation ", sequence,
                      " of '", group->name(), "'");
}

std::vector<ScheduledWorld::Issue> ScheduledWorld::IssuedWith(int other,
                                                              int rank) const {
  std::vector<Issue> shared;
  absl::c_copy_if(issued_[rank], std::back_inserter(shared),
                  [other](const Issue& issue) {
                    return absl::c_linear_search(issue.group->members(), other);
                  });
  return shared;
}

// Where one has issued less than the other, it has failed or is waited for.
std::string ScheduledWorld::OrderDifference(int a, int b) const {
  const std::vector<Issue> by_a = IssuedWith(b, a);
  const std::vector<Issue> by_b = IssuedWith(a, b);
  for (size_t i = 0; i < std::min(by_a.size(), by_b.size()); ++i) {
    if (by_a[i].IsSame(by_b[i])) continue;
    return absl::StrCat("ranks ", a, " and ", b,
                        " issue what they share in different orders: as ", i,
                        " rank ", a, " issues ", by_a[i].ToString(), ", rank ",
                        b, " ", by_b[i].ToString());
  }
  return "";
}

std::vector<std::string> ScheduledWorld::OrderDifferences() const {
  std::vector<std::string> differences;
  for (int a = 0; a < num_ranks_; ++a) {
    for (int b = a + 1; b < num_ranks_; ++b) {
      std::string difference = OrderDifference(a, b);
      if (!difference.empty()) differences.push_back(std::move(difference));
    }
  }
  return differences;
}

}  // namespace tessera::testing
