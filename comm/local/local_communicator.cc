#include "tessera/comm/local/local_communicator.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

// An operation on its way through a stream. Where it is destroyed without
// having run, the group's other members would wait for it in vain: it aborts
// the group.
class EnqueuedOperation {
 public:
  EnqueuedOperation(std::shared_ptr<LocalGroup> group, int rank, int world_rank,
                    const Stream& stream, Collective call, int64_t sequence)
      : group_(std::move(group)),
        rank_(rank),
        world_rank_(world_rank),
        stream_(stream),
        call_(std::move(call)),
        sequence_(sequence) {}
  EnqueuedOperation(const EnqueuedOperation&) = delete;
  EnqueuedOperation& operator=(const EnqueuedOperation&) = delete;

  ~EnqueuedOperation() {
    if (has_run_) return;
    group_->Abort(absl::StrCat("the stream of rank ", world_rank_,
                               " failed before ",
                               CollectiveKindName(call_.kind), ", operation ",
                               sequence_, ": ", stream_.status().message()));
  }

  absl::Status Run() {
    has_run_ = true;
    return group_->Run(rank_, call_);
  }

 private:
  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
  const int world_rank_;
  const Stream& stream_;
  const Collective call_;
  const int64_t sequence_;
  bool has_run_ = false;
};

using MemoryRanges = absl::InlinedVector<MemoryRange, 2>;

// What `view` and `transfers` cover, views without memory aside.
MemoryRanges RangesOf(const TensorView& view,
                      absl::Span<const Transfer> transfers) {
  MemoryRanges ranges;
  if (view.data() != nullptr) ranges.emplace_back(view);
  for (const Transfer& t : transfers) ranges.emplace_back(t.view);
  return ranges;
}

int64_t TotalBytes(const MemoryRanges& ranges) {
  int64_t bytes = 0;
  for (const MemoryRange& range : ranges) bytes += range.bytes;
  return bytes;
}

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<LocalRegistry> registry,
                                     int64_t parent, std::vector<int> members,
                                     int rank, absl::string_view name,
                                     Stream& stream,
                                     std::shared_ptr<CommLog> log)
    : Communicator(std::move(members), rank, name, stream, std::move(log)),
      registry_(std::move(registry)),
      group_(registry_->Join(parent,
                             {this->members().begin(), this->members().end()},
                             this->members()[rank], name)) {}

absl::StatusOr<std::vector<std::string>> LocalCommunicator::HostAllGather(
    absl::string_view value) {
  return group_->HostAllGather(rank(), value);
}

void LocalCommunicator::Abort(const absl::Status& reason) {
  group_->Abort(
      absl::StrCat("by rank ", members()[rank()], ": ", reason.ToString()));
}

absl::Status LocalCommunicator::Enqueue(Collective call, int64_t sequence) {
  TESSERA_RETURN_IF_ERROR(group_->status());
  const MemoryRanges reads = RangesOf(call.send, call.sends);
  const MemoryRanges writes = RangesOf(call.recv, call.recvs);
  const LaunchDescriptor descriptor = {
      .name = CollectiveKindName(call.kind),
      .reads = reads,
      .writes = writes,
      .bytes = TotalBytes(reads) + TotalBytes(writes)};
  auto operation = std::make_unique<EnqueuedOperation>(
      group_, rank(), members()[rank()], stream(), std::move(call), sequence);
  return stream().Launch(descriptor, [operation = std::move(operation)] {
    return operation->Run();
  });
}

absl::StatusOr<std::unique_ptr<Communicator>> LocalCommunicator::MakeSubgroup(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(group_->status());
  std::vector<int> world_ranks;
  int index = 0;
  for (int member : members) {
    if (member == rank()) index = static_cast<int>(world_ranks.size());
    world_ranks.push_back(this->members()[member]);
  }
  return std::make_unique<LocalCommunicator>(registry_, group_->id(),
                                             std::move(world_ranks), index,
                                             name, stream, log());
}

}  // namespace tessera::internal
