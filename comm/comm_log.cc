#include "tessera/comm/comm_log.h"

#include <tuple>

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

void CommLog::Append(const CollectiveRecord& record) {
  MutexLock lock(mutex_);
  auto it = counters_.find(KeyView(record.communicator, record.kind));
  if (it == counters_.end()) {
    it = counters_.try_emplace(Key(record.communicator, record.kind)).first;
  }
  CommCounter& counter = it->second;
  ++counter.calls;
  counter.bytes_received += record.bytes_received;

  const Entry entry = {it,
                       record.sequence,
                       record.op,
                       record.dtype,
                       record.elements,
                       record.bytes_received,
                       record.group_size};
  if (ring_.size() < ring_size_) {
    ring_.push_back(entry);
  } else if (ring_size_ > 0) {
    ring_[oldest_] = entry;
    oldest_ = (oldest_ + 1) % ring_size_;
  }
}

CollectiveRecord CommLog::RecordOf(const Entry& entry) {
  CollectiveRecord record;
  record.sequence = entry.sequence;
  std::tie(record.communicator, record.kind) = entry.counter->first;
  record.op = entry.op;
  record.dtype = entry.dtype;
  record.elements = entry.elements;
  record.bytes_received = entry.bytes_received;
  record.group_size = entry.group_size;
  return record;
}

CommLog::Counters CommLog::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

std::vector<CollectiveRecord> CommLog::recent() const {
  MutexLock lock(mutex_);
  std::vector<CollectiveRecord> records;
  records.reserve(ring_.size());
  for (size_t i = 0; i < ring_.size(); ++i) {
    records.push_back(RecordOf(ring_[(oldest_ + i) % ring_.size()]));
  }
  return records;
}

void CommLog::Clear() {
  MutexLock lock(mutex_);
  ring_.clear();
  oldest_ = 0;
  counters_.clear();
}

}  // namespace tessera
