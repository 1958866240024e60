#include "tessera/comm/comm_log.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tessera/base/file.h"

namespace tessera {
namespace {

constexpr char kDumpVariable[] = "TESSERA_COMM_DUMP";

std::string FolderFromEnvironment() {
  const char* const variable = std::getenv(kDumpVariable);
  return variable == nullptr ? "" : variable;
}

bool IsReduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduceScatter;
}

// Cells of one width per column, without blanks at the ends of lines.
std::string Aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&text, row[i]);
      if (i + 1 == row.size()) break;
      text.append(widths[i] - row[i].size() + 2, ' ');
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::vector<std::string> Cells(const CollectiveRecord& record) {
  return {std::string(CollectiveStateName(record.state)),
          record.communicator,
          absl::StrCat(record.sequence),
          std::string(CollectiveKindName(record.kind)),
          IsReduction(record.kind) ? std::string(ReduceOpName(record.op)) : "-",
          std::string(DTypeName(record.dtype)),
          absl::StrCat(record.elements),
          absl::StrCat(record.bytes_received),
          absl::StrCat(record.group_size)};
}

}  // namespace

absl::string_view CollectiveStateName(CollectiveState state) {
  switch (state) {
    case CollectiveState::kEnqueued:
      return "enqueued";
    case CollectiveState::kStarted:
      return "started";
    case CollectiveState::kDone:
      return "done";
  }
  return "";
}

std::string CollectiveRecord::ToString() const {
  const bool reduces = IsReduction(kind);
  return absl::StrCat(communicator, " #", sequence, " ",
                      CollectiveKindName(kind), reduces ? " " : "",
                      reduces ? ReduceOpName(op) : "", " ", DTypeName(dtype),
                      " ", elements);
}

CommLog::CommLog(Options options)
    : ring_size_(options.ring_size),
      dump_folder_(options.dump_folder.empty()
                       ? FolderFromEnvironment()
                       : std::move(options.dump_folder)),
      logger_(std::move(options.logger)) {
  ring_.reserve(ring_size_);
}

void CommLog::Append(const CollectiveRecord& record,
                     std::shared_ptr<const CommProgress> progress) {
  MutexLock lock(mutex_);
  auto it = counters_.find(KeyView(record.communicator, record.kind));
  if (it == counters_.end()) {
    it = counters_.try_emplace(Key(record.communicator, record.kind)).first;
  }
  CommCounter& counter = it->second;
  ++counter.calls;
  counter.bytes_received += record.bytes_received;

  Entry entry = {it,
                 record.sequence,
                 record.op,
                 record.dtype,
                 record.elements,
                 record.bytes_received,
                 record.group_size,
                 record.state,
                 std::move(progress)};
  if (ring_.size() < ring_size_) {
    ring_.push_back(std::move(entry));
  } else if (ring_size_ > 0) {
    ring_[oldest_] = std::move(entry);
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
  record.state = entry.state;
  if (entry.progress == nullptr) return record;
  if (entry.sequence < entry.progress->done) {
    record.state = CollectiveState::kDone;
  } else if (entry.sequence < entry.progress->started) {
    record.state = CollectiveState::kStarted;
  }
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

std::string CommLog::ToTable() const {
  std::vector<std::vector<std::string>> rows = {
      {"state", "communicator", "sequence", "collective", "op", "dtype",
       "elements", "bytes received", "ranks"}};
  for (const CollectiveRecord& record : recent()) {
    rows.push_back(Cells(record));
  }
  return Aligned(rows);
}

absl::Status CommLog::WriteTable(const std::string& path) const {
  return internal::WriteFile(path, ToTable());
}

void CommLog::NoteFailure(int rank, const absl::Status& failure) {
  if (dump_folder_.empty() || has_failed_.exchange(true)) return;
  const std::string path =
      absl::StrCat(dump_folder_, "/tessera-rank", rank, ".txt");
  const absl::Status written = internal::WriteFile(
      path, absl::StrCat("The last collectives of rank ", rank,
                         ", oldest first, when one of them failed with\n\n",
                         failure.ToString(), "\n\n", ToTable()));
  if (written.ok()) {
    logger_.Warning(absl::StrCat("comm: a collective failed on rank ", rank,
                                 "; the last ones are in ", path));
  } else {
    logger_.Error(absl::StrCat("comm: ", std::string(written.message())));
  }
}

}  // namespace tessera
