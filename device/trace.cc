#include "tessera/device/trace.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "tessera/tensor/index.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Times of the clock, ascending; those that touch or overlap are one.
using Periods = std::vector<Interval>;

Periods Union(std::vector<Interval> intervals) {
  absl::c_sort(intervals, [](const Interval& a, const Interval& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  Periods periods;
  for (const Interval& interval : intervals) {
    if (!periods.empty() && interval.begin <= periods.back().end) {
      periods.back().end = std::max(periods.back().end, interval.end);
    } else {
      periods.push_back(interval);
    }
  }
  return periods;
}

int64_t Length(absl::Span<const Interval> periods) {
  int64_t length = 0;
  for (const Interval& period : periods) length += period.size();
  return length;
}

// The time that lies in both.
int64_t SharedLength(absl::Span<const Interval> a,
                     absl::Span<const Interval> b) {
  int64_t length = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    length += Intersect(a[i], b[j]).size();
    // What ends first shares nothing with what comes.
    a[i].end < b[j].end ? ++i : ++j;
  }
  return length;
}

TraceTimes::Communication TimesOf(std::vector<Interval> collectives,
                                  absl::Span<const Interval> computation) {
  const Periods busy = Union(std::move(collectives));
  const int64_t length = Length(busy);
  return {.busy_ps = length,
          .exposed_ps = length - SharedLength(busy, computation)};
}

// Writes the events of one rank.
class RankEvents {
 public:
  // Times count from `origin_ps`. LIFETIME: borrows both.
  RankEvents(const RankTrace& rank, int64_t origin_ps, Json& events)
      : pid_(rank.rank),
        trace_(rank.trace),
        origin_ps_(origin_ps),
        events_(events) {}

  void Write() {
    Name("process_name", 0, absl::StrCat("rank ", pid_));
    for (size_t i = 0; i < trace_.streams.size(); ++i) {
      Name("thread_name", static_cast<int>(i), trace_.streams[i]);
    }
    WriteRanges();
    for (const TracedOperation& operation : trace_.operations) {
      Json event = Slice(operation.name, operation.stream,
                         {operation.begin_ps, operation.end_ps});
      if (!operation.communicator.empty()) {
        event["args"] = {{"communicator", operation.communicator}};
      }
      events_.push_back(std::move(event));
    }
    for (const MemorySample& sample : trace_.memory) {
      events_.push_back({{"name", absl::StrCat("memory ", sample.tag)},
                         {"ph", "C"},
                         {"pid", pid_},
                         {"ts", Microseconds(sample.time_ps - origin_ps_)},
                         {"args", {{"bytes", sample.bytes}}}});
    }
  }

 private:
  static double Microseconds(int64_t picoseconds) {
    return static_cast<double>(picoseconds) / 1e6;
  }

  // Of a process or a thread.
  void Name(absl::string_view what, int tid, absl::string_view name) {
    events_.push_back({{"name", std::string(what)},
                       {"ph", "M"},
                       {"pid", pid_},
                       {"tid", tid},
                       {"args", {{"name", std::string(name)}}}});
  }

  Json Slice(const std::string& name, int stream, Interval time) const {
    return {{"name", name},
            {"ph", "X"},
            {"pid", pid_},
            {"tid", stream},
            {"ts", Microseconds(time.begin - origin_ps_)},
            {"dur", Microseconds(time.size())}};
  }

  // From the first to the last operation of each, outer before inner.
  void WriteRanges() {
    struct Extent {
      int stream = -1;
      Interval time = {};
    };
    std::vector<Extent> extents(trace_.ranges.size());
    for (const TracedOperation& operation : trace_.operations) {
      for (int range = operation.range; range >= 0;
           range = trace_.ranges[range].enclosing) {
        Extent& extent = extents[range];
        if (extent.stream < 0) extent.time.begin = operation.begin_ps;
        extent.stream = operation.stream;
        extent.time.end = operation.end_ps;
      }
    }
    for (size_t i = 0; i < extents.size(); ++i) {
      const Extent& extent = extents[i];
      if (extent.stream < 0) continue;  // nothing is of it
      events_.push_back(
          Slice(trace_.ranges[i].name, extent.stream, extent.time));
    }
  }

  const int pid_;
  const Trace& trace_;
  const int64_t origin_ps_;
  Json& events_;
};

}  // namespace

TraceTimes TimesOf(const Trace& trace, absl::string_view compute_stream) {
  TraceTimes times;
  times.busy_ps.assign(trace.streams.size(), 0);
  std::vector<Interval> computation;
  std::vector<Interval> collectives;
  std::map<std::string, std::vector<Interval>> by_communicator;
  for (const TracedOperation& operation : trace.operations) {
    const Interval interval = {operation.begin_ps, operation.end_ps};
    times.total_ps = std::max(times.total_ps, interval.end - trace.begin_ps);
    times.busy_ps[operation.stream] += interval.size();
    if (!operation.communicator.empty()) {
      collectives.push_back(interval);
      by_communicator[operation.communicator].push_back(interval);
    } else if (trace.streams[operation.stream] == compute_stream) {
      computation.push_back(interval);
    }
  }
  const Periods computing = Union(std::move(computation));
  times.communication = TimesOf(std::move(collectives), computing);
  for (auto& [name, intervals] : by_communicator) {
    times.communicators[name] = TimesOf(std::move(intervals), computing);
  }
  return times;
}

std::string ToChromeTrace(absl::Span<const RankTrace> ranks) {
  int64_t origin_ps = INT64_MAX;
  for (const RankTrace& rank : ranks) {
    origin_ps = std::min(origin_ps, rank.trace.begin_ps);
  }
  Json events = Json::array();
  for (const RankTrace& rank : ranks) {
    RankEvents(rank, origin_ps, events).Write();
  }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}
      .dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
            Json::error_handler_t::replace);  // names are the caller's
}

}  // namespace tessera
