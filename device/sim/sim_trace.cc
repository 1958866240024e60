#include "tessera/device/sim/sim_trace.h"

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

SimTimes::Communication TimesOf(std::vector<Interval> collectives,
                                absl::Span<const Interval> computation) {
  const Periods busy = Union(std::move(collectives));
  const int64_t length = Length(busy);
  return {.busy_ps = length,
          .exposed_ps = length - SharedLength(busy, computation)};
}

double Microseconds(int64_t picoseconds) {
  return static_cast<double>(picoseconds) / 1e6;
}

// Names a process or a thread.
Json NameEvent(absl::string_view what, int pid, int tid,
               absl::string_view name) {
  return {{"name", std::string(what)},
          {"ph", "M"},
          {"pid", pid},
          {"tid", tid},
          {"args", {{"name", std::string(name)}}}};
}

Json SliceEvent(const SimOperation& operation, int pid) {
  Json event = {{"name", operation.name},
                {"ph", "X"},
                {"pid", pid},
                {"tid", operation.stream},
                {"ts", Microseconds(operation.begin_ps)},
                {"dur", Microseconds(operation.end_ps - operation.begin_ps)}};
  if (!operation.communicator.empty()) {
    event["args"] = {{"communicator", operation.communicator}};
  }
  return event;
}

Json CounterEvent(const SimMemorySample& sample, int pid) {
  return {{"name", absl::StrCat("memory ", sample.tag)},
          {"ph", "C"},
          {"pid", pid},
          {"ts", Microseconds(sample.time_ps)},
          {"args", {{"bytes", sample.bytes}}}};
}

}  // namespace

SimTimes TimesOf(const SimTrace& trace, absl::string_view compute_stream) {
  SimTimes times;
  times.busy_ps.assign(trace.streams.size(), 0);
  std::vector<Interval> computation;
  std::vector<Interval> collectives;
  std::map<std::string, std::vector<Interval>> by_communicator;
  for (const SimOperation& operation : trace.operations) {
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

std::string ToChromeTrace(const SimTrace& trace, int rank) {
  Json events = Json::array();
  events.push_back(
      NameEvent("process_name", rank, 0, absl::StrCat("rank ", rank)));
  for (size_t i = 0; i < trace.streams.size(); ++i) {
    events.push_back(
        NameEvent("thread_name", rank, static_cast<int>(i), trace.streams[i]));
  }
  for (const SimOperation& operation : trace.operations) {
    events.push_back(SliceEvent(operation, rank));
  }
  for (const SimMemorySample& sample : trace.memory) {
    events.push_back(CounterEvent(sample, rank));
  }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}
      .dump();
}

}  // namespace tessera
