#include "tessera/device/trace_builder.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

int TraceBuilder::AddStream(absl::string_view name) {
  trace_.streams.emplace_back(name);
  open_ranges_.push_back(-1);
  return static_cast<int>(trace_.streams.size()) - 1;
}

void TraceBuilder::BeginRange(int stream, absl::string_view action,
                              absl::string_view subject) {
  trace_.ranges.push_back(
      {.name = absl::StrCat(action, subject.empty() ? "" : " ", subject),
       .enclosing = open_ranges_[stream]});
  open_ranges_[stream] = static_cast<int>(trace_.ranges.size()) - 1;
}

void TraceBuilder::EndRange(int stream) {
  int& open = open_ranges_[stream];
  if (open >= 0) open = trace_.ranges[open].enclosing;
}

int64_t TraceBuilder::AddOperation(int stream, absl::string_view name,
                                   absl::string_view communicator) {
  trace_.operations.push_back({.name = std::string(name),
                               .stream = stream,
                               .communicator = std::string(communicator),
                               .begin_ps = 0,
                               .end_ps = 0,
                               .range = open_ranges_[stream]});
  return first_ + static_cast<int64_t>(trace_.operations.size()) - 1;
}

void TraceBuilder::SetTimes(int64_t number, int64_t begin_ps, int64_t end_ps) {
  if (number < first_) return;
  TracedOperation& operation = trace_.operations[number - first_];
  operation.begin_ps = begin_ps;
  operation.end_ps = end_ps;
}

void TraceBuilder::Clear(int64_t begin_ps) {
  trace_.begin_ps = begin_ps;
  first_ += static_cast<int64_t>(trace_.operations.size());
  trace_.operations.clear();
  // Open ranges go first; those that enclose them are open, too.
  std::vector<TracedRange> kept;
  for (int& open : open_ranges_) {
    std::vector<int> chain;  // from the innermost out
    for (int range = open; range >= 0; range = trace_.ranges[range].enclosing) {
      chain.push_back(range);
    }
    open = -1;
    for (auto range = chain.rbegin(); range != chain.rend(); ++range) {
      kept.push_back({std::move(trace_.ranges[*range].name), open});
      open = static_cast<int>(kept.size()) - 1;
    }
  }
  trace_.ranges = std::move(kept);
}

}  // namespace tessera::internal
