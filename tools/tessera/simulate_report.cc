#include "tools/tessera/simulate_report.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/tessera/table.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

double Milliseconds(int64_t picoseconds) {
  return static_cast<double>(picoseconds) / 1e9;
}

std::string FormatMilliseconds(int64_t picoseconds) {
  return absl::StrFormat("%.2f", Milliseconds(picoseconds));
}

// In units of 10^12 or 10^9 a second.
double InTera(int64_t rate) { return static_cast<double>(rate) / 1e12; }
double InGiga(int64_t rate) { return static_cast<double>(rate) / 1e9; }

std::string Heading(const SimulateReport& report) {
  const TrainingOptions& training = report.training;
  std::string text = absl::StrCat(
      report.model.name, " on ", training.mesh.size(), " ranks, mesh '",
      training.mesh.ToString(), "', topology ", report.topology, "\n");
  if (!report.strategy.empty()) absl::StrAppend(&text, report.strategy, ": ");
  absl::StrAppend(&text, training.placements.ToString(), "\n",
                  training.microbatches, " x ", training.tokens,
                  " tokens a rank, ", TrainerOptimizerName(training.optimizer),
                  ", ", InTera(*report.rates.flops_per_second), " TFLOP/s, ",
                  InGiga(*report.rates.memory_bytes_per_second), " GB/s");
  if (training.active_percent < 100) {
    absl::StrAppend(&text, ", ", training.active_percent,
                    " % of parameters active");
  }
  return absl::StrCat(text, "\n");
}

std::string TimeTable(const StepReport& step) {
  std::vector<Row> rows = {{"time", "ms", "%"}};
  const auto add = [&](absl::string_view name, int64_t time_ps) {
    rows.push_back(
        {std::string(name), FormatMilliseconds(time_ps),
         FormatPercent(time_ps, std::max<int64_t>(step.step_ps, 1))});
  };
  add("computation", step.compute_ps);
  add("exposed communication", step.exposed_ps);
  add("other", step.step_ps - step.compute_ps - step.exposed_ps);
  add("step", step.step_ps);
  return Align(rows);
}

std::string AxisTable(const StepReport& step) {
  std::vector<Row> rows = {
      {"axis", "calls", "received", "busy ms", "exposed ms"}};
  for (const StepReport::Axis& axis : step.axes) {
    rows.push_back({axis.name, absl::StrCat(axis.calls),
                    FormatBytes(axis.bytes_received),
                    FormatMilliseconds(axis.busy_ps),
                    FormatMilliseconds(axis.exposed_ps)});
  }
  return Align(rows);
}

std::string MemoryTable(const StepReport& step) {
  std::vector<Row> rows = {{"memory", "peak"}};
  for (const auto& [tag, usage] : step.memory.by_tag) {
    rows.push_back({tag, FormatBytes(usage.peak_bytes)});
  }
  rows.push_back({"all", FormatBytes(step.memory.total.peak_bytes)});
  return Align(rows);
}

// One figure of each axis, by its name.
template <typename Figure>
OrderedJson ByAxis(const StepReport& step, Figure figure) {
  OrderedJson object = OrderedJson::object();
  for (const StepReport::Axis& axis : step.axes) {
    object[axis.name] = figure(axis);
  }
  return object;
}

OrderedJson CollectivesToJson(const StepReport& step) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [key, counter] : step.collectives) {
    const auto& [axis, kind] = key;
    list.push_back({{"axis", axis},
                    {"kind", std::string(CollectiveKindName(kind))},
                    {"calls", counter.calls},
                    {"bytes", counter.bytes_received}});
  }
  return list;
}

OrderedJson PeaksToJson(const MemoryReport& memory) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [tag, usage] : memory.by_tag) {
    object[tag] = usage.peak_bytes;
  }
  return object;
}

OrderedJson UnitsToJson(const Model& model) {
  OrderedJson list = OrderedJson::array();
  for (const Model::Unit& unit : model.units) {
    list.push_back({{"name", unit.name},
                    {"repeat", unit.repeat},
                    {"elements", unit.num_elements()}});
  }
  return list;
}

}  // namespace

std::string SimulateReport::ToTable() const {
  return absl::StrCat(Heading(*this), "\n", TimeTable(step), "\n",
                      AxisTable(step), "\n", MemoryTable(step));
}

std::string SimulateReport::ToJson() const {
  using Axis = StepReport::Axis;
  OrderedJson document = {{"version", 1},
                          {"model", model.name},
                          {"dtype", std::string(DTypeName(model.dtype))},
                          {"units", UnitsToJson(model)},
                          {"mesh", training.mesh.ToString()},
                          {"ranks", training.mesh.size()}};
  if (!strategy.empty()) document["strategy"] = strategy;
  document.update(OrderedJson{
      {"placements", training.placements.ToString()},
      {"topology", topology},
      {"tokens", training.tokens},
      {"microbatches", training.microbatches},
      {"optimizer", std::string(TrainerOptimizerName(training.optimizer))},
      {"prefetch", training.overlap.prefetch},
      {"gradients_in_flight", training.overlap.gradients_in_flight},
      {"active_percent", training.active_percent},
      {"tflops", InTera(*rates.flops_per_second)},
      {"memory_gb_per_s", InGiga(*rates.memory_bytes_per_second)},
      {"step_ms", Milliseconds(step.step_ps)},
      {"compute_ms", Milliseconds(step.compute_ps)},
      {"exposed_total_ms", Milliseconds(step.exposed_ps)},
      {"exposed_ms",
       ByAxis(step,
              [](const Axis& axis) { return Milliseconds(axis.exposed_ps); })},
      {"communication_ms",
       ByAxis(step,
              [](const Axis& axis) { return Milliseconds(axis.busy_ps); })},
      {"bytes",
       ByAxis(step, [](const Axis& axis) { return axis.bytes_received; })},
      {"collectives", CollectivesToJson(step)},
      {"peak_bytes", step.memory.total.peak_bytes},
      {"peak_by_tag", PeaksToJson(step.memory)}});
  return absl::StrCat(document.dump(2), "\n");
}

}  // namespace tessera::tools
