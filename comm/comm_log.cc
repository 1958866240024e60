#include "tessera/comm/comm_log.h"

#include "absl/strings/str_cat.h"

namespace tessera {

std::string CollectiveRecord::ToString() const {
  const bool reduces = kind == CollectiveKind::kAllReduce ||
                       kind == CollectiveKind::kReduceScatter;
  return absl::StrCat(communicator, " #", sequence, " ",
                      CollectiveKindName(kind), reduces ? " " : "",
                      reduces ? ReduceOpName(op) : "", " ", DTypeName(dtype),
                      " ", elements);
}

void CommLog::Append(CollectiveRecord record) {
  MutexLock lock(mutex_);
  CommCounter& counter = counters_[Key(record.communicator, record.kind)];
  ++counter.calls;
  counter.bytes_received += record.bytes_received;
  ring_.push_back(std::move(record));
  if (ring_.size() > ring_size_) ring_.pop_front();
}

CommLog::Counters CommLog::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

std::vector<CollectiveRecord> CommLog::recent() const {
  MutexLock lock(mutex_);
  return {ring_.begin(), ring_.end()};
}

void CommLog::Clear() {
  MutexLock lock(mutex_);
  counters_.clear();
  ring_.clear();
}

}  // namespace tessera
