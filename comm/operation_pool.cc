#include "tessera/comm/operation_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/comm/calls.h"

namespace tessera::internal {
namespace {

int64_t BytesOf(absl::Span<const MemoryRange> ranges) {
  int64_t bytes = 0;
  for (const MemoryRange& range : ranges) bytes += range.bytes;
  return bytes;
}

}  // namespace

Operation::Operation(std::shared_ptr<OperationPool> pool,
                     std::unique_ptr<Arguments> arguments)
    : pool_(std::move(pool)), arguments_(std::move(arguments)) {}

Operation::~Operation() {
  if (arguments_ == nullptr) return;
  if (!arguments_->has_run) pool_->Abandon(*arguments_);
  pool_->Return(std::move(arguments_));
}

absl::Status Operation::Run() {
  arguments_->has_run = true;
  return pool_->Run(*arguments_);
}

OperationPool::OperationPool(std::shared_ptr<OperationGroup> group, int rank,
                             int world_rank, Stream& stream,
                             std::shared_ptr<CommLog> log,
                             std::shared_ptr<CommProgress> progress)
    : group_(std::move(group)),
      rank_(rank),
      world_rank_(world_rank),
      stream_(stream),
      log_(std::move(log)),
      progress_(std::move(progress)) {}

absl::Status OperationPool::Launch(absl::Span<const Collective> calls,
                                   int64_t sequence,
                                   absl::string_view communicator) {
  if (absl::Status status = group_->status(); !status.ok()) {
    log_->NoteFailure(world_rank_, status);
    return status;
  }
  reads_.clear();
  writes_.clear();
  for (const Collective& call : calls) AppendRanges(call, reads_, writes_);
  const LaunchDescriptor descriptor = {
      .name = CollectiveKindName(calls.front().kind),
      .reads = reads_,
      .writes = writes_,
      .bytes = BytesOf(reads_) + BytesOf(writes_),
      .communicator = communicator};
  return stream_.Launch(
      descriptor,
      [operation = New(calls, sequence)]() mutable { return operation.Run(); });
}

Operation OperationPool::New(absl::Span<const Collective> calls,
                             int64_t sequence) {
  std::unique_ptr<Arguments> arguments = Take();
  size_t transfers = 0;
  for (const Collective& call : calls) {
    transfers += call.sends.size() + call.recvs.size();
  }
  most_calls_ = std::max(most_calls_, calls.size());
  most_transfers_ = std::max(most_transfers_, transfers);
  arguments->calls.reserve(most_calls_);
  arguments->transfers.clear();
  arguments->transfers.reserve(most_transfers_);  // so that none of them moves
  const auto copied = [&](absl::Span<const Transfer> some) {
    const size_t first = arguments->transfers.size();
    arguments->transfers.insert(arguments->transfers.end(), some.begin(),
                                some.end());
    return absl::MakeConstSpan(arguments->transfers).subspan(first);
  };
  arguments->calls.assign(calls.begin(), calls.end());
  for (Collective& call : arguments->calls) {
    call.sends = copied(call.sends);
    call.recvs = copied(call.recvs);
  }
  arguments->sequence = sequence;
  arguments->has_run = false;
  return Operation(shared_from_this(), std::move(arguments));
}

std::unique_ptr<OperationPool::Arguments> OperationPool::Take() {
  MutexLock lock(mutex_);
  if (free_.empty()) return std::make_unique<Arguments>();
  std::unique_ptr<Arguments> arguments = std::move(free_.back());
  free_.pop_back();
  return arguments;
}

void OperationPool::Return(std::unique_ptr<Arguments> arguments) {
  MutexLock lock(mutex_);
  free_.push_back(std::move(arguments));
}

absl::Status OperationPool::Run(const Arguments& arguments) {
  progress_->started = arguments.sequence + 1;
  absl::Status status = group_->Run(rank_, arguments.calls);
  if (status.ok()) {
    progress_->done = arguments.sequence + 1;
  } else {
    log_->NoteFailure(world_rank_, status);
  }
  return status;
}

void OperationPool::Abandon(const Arguments& arguments) {
  group_->Abort(absl::StrCat(
      "the stream of rank ", world_rank_, " failed before ",
      CollectiveKindName(arguments.calls.front().kind), ", operation ",
      arguments.sequence, ": ", stream_.status().message()));
}

}  // namespace tessera::internal
