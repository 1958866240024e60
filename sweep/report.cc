#include "tessera/sweep/report.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tessera/redistribute/text_table.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double kMicro = 1e6;
constexpr double kGiga = 1e9;

// --- For programs -----------------------------------------------------------

// The figures of a row, by column; null for none.
OrderedJson ToJson(const SweepRow& row) {
  OrderedJson json = {{"mesh", row.mesh},
                      {"tensor", row.tensor},
                      {"from", row.from},
                      {"to", row.to},
                      {"skipped", row.skipped},
                      {"plan", row.plan},
                      {"steps", absl::StrJoin(row.steps, " ")}};
  const bool measured = row.skipped.empty();
  const auto put = [&](const char* column, std::optional<double> value) {
    json[column] = nullptr;
    if (measured && value.has_value()) json[column] = *value;
  };
  const auto count = [&](const char* column, int64_t value) {
    json[column] = nullptr;
    if (measured) json[column] = value;
  };
  count("launches", row.launches);
  count("bytes", row.bytes);
  count("bytes_received", row.bytes_received);
  put("planning_us", row.planning_seconds * kMicro);
  put("predicted_us", row.predicted_seconds * kMicro);
  put("time_us", row.seconds * kMicro);
  put("memcpy_us", row.memcpy_seconds * kMicro);
  put("bare_us", row.bare_seconds.has_value()
                     ? std::optional(*row.bare_seconds * kMicro)
                     : std::nullopt);
  put("memcpy_ratio", row.MemcpyRatio());
  put("bare_ratio", row.BareRatio());
  put("algbw_gbps", row.AlgBandwidth() / kGiga);
  put("busbw_gbps", row.BusBandwidth() / kGiga);
  return json;
}

std::string CsvCell(const OrderedJson& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvLine(absl::Span<const std::string> cells) {
  return absl::StrCat(absl::StrJoin(cells, ","), "\n");
}

// --- For people -------------------------------------------------------------

// "P S0" for "[P(sum), S(0)]".
std::string Terse(const std::string& layout) {
  return absl::StrReplaceAll(
      layout,
      {{"[", ""}, {"]", ""}, {",", ""}, {"(sum)", ""}, {"(", ""}, {")", ""}});
}

// "RS AG" for RS(a) AG(b,c).
std::string Kinds(absl::Span<const std::string> steps) {
  return absl::StrJoin(steps, " ", [](std::string* out, const auto& step) {
    out->append(step, 0, step.find('('));
  });
}

// With three digits that count, as far as there is room.
std::string Number(double value) {
  if (value >= 99.95) return absl::StrFormat("%.0f", value);
  if (value >= 9.995) return absl::StrFormat("%.1f", value);
  return absl::StrFormat("%.2f", value);
}

std::string Number(std::optional<double> value) {
  return value.has_value() ? Number(*value) : "-";
}

std::string Bytes(int64_t bytes) {
  double value = static_cast<double>(bytes);
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  if (unit == 0) return absl::StrCat(bytes, " B");
  return absl::StrFormat("%.3g %s", value, units[unit]);
}

internal::TableRow TableRowOf(const SweepRow& row) {
  return {absl::StrCat(Terse(row.from), " -> ", Terse(row.to)),
          row.steps.empty() ? "-" : Kinds(row.steps),
          Bytes(row.bytes),
          Number(row.planning_seconds * kMicro),
          Number(row.predicted_seconds * kMicro),
          Number(row.seconds * kMicro),
          Number(row.MemcpyRatio()),
          Number(row.BareRatio()),
          Number(row.AlgBandwidth() / kGiga),
          Number(row.BusBandwidth() / kGiga)};
}

std::string Combination(const SweepRow& row) {
  std::string text = absl::StrCat(row.tensor, " on '", row.mesh, "'");
  if (!row.from.empty()) absl::StrAppend(&text, " ", row.from, " -> ", row.to);
  return text;
}

// What was skipped: a line for each reason, with the first combination.
std::string Skipped(absl::Span<const SweepRow> rows) {
  std::vector<std::pair<const SweepRow*, int>> reasons;
  std::map<std::string, size_t> place;
  for (const SweepRow& row : rows) {
    if (row.skipped.empty()) continue;
    const auto [at, is_new] = place.emplace(row.skipped, reasons.size());
    if (is_new) reasons.push_back({&row, 0});
    ++reasons[at->second].second;
  }
  std::string text;
  for (const auto& [row, count] : reasons) {
    absl::StrAppend(&text, "skipped ", count, ": ", row->skipped, "\n  ",
                    count == 1 ? "" : "first ", Combination(*row), "\n");
  }
  return text;
}

// The measured rows in one table, with a heading for each mesh and tensor.
std::string Measured(absl::Span<const SweepRow* const> rows) {
  std::vector<internal::TableRow> table = {{"from -> to", "steps", "bytes",
                                            "plan us", "pred us", "time us",
                                            "xcpy", "xbare", "algbw", "busbw"}};
  for (const SweepRow* row : rows) table.push_back(TableRowOf(*row));
  const std::string formatted = internal::FormatTable(table, 2);
  const std::vector<std::string> lines = absl::StrSplit(formatted, '\n');
  std::string text = absl::StrCat(lines[0], "\n");
  std::string heading;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string next =
        absl::StrCat(rows[i]->tensor, " on '", rows[i]->mesh, "'");
    if (next != heading) absl::StrAppend(&text, "\n", next, "\n");
    heading = std::move(next);
    absl::StrAppend(&text, lines[i + 1], "\n");
  }
  return text;
}

constexpr char kLegend[] =
    "bytes: at most written or, where addends are reduced, read by a rank; "
    "xcpy: times as long as\na memcpy of these; xbare: as the collectives "
    "alone; algbw, busbw: as in nccl-tests, GB/s\n";

}  // namespace

std::string SweepTable(absl::Span<const SweepRow> rows) {
  std::vector<const SweepRow*> measured;
  for (const SweepRow& row : rows) {
    if (row.skipped.empty()) measured.push_back(&row);
  }
  std::string text;
  if (!measured.empty()) text = absl::StrCat(Measured(measured), "\n", kLegend);
  const std::string skipped = Skipped(rows);
  if (!text.empty() && !skipped.empty()) text += "\n";
  return text + skipped;
}

std::string SweepCsv(absl::Span<const SweepRow> rows) {
  const OrderedJson columns = ToJson(SweepRow());
  std::vector<std::string> names;
  for (const auto& column : columns.items()) names.push_back(column.key());
  std::string text = CsvLine(names);
  for (const SweepRow& row : rows) {
    std::vector<std::string> cells;
    for (const OrderedJson& value : ToJson(row)) {
      cells.push_back(CsvCell(value));
    }
    absl::StrAppend(&text, CsvLine(cells));
  }
  return text;
}

std::string SweepJson(absl::Span<const SweepRow> rows) {
  OrderedJson document = {{"version", 1}, {"rows", OrderedJson::array()}};
  for (const SweepRow& row : rows) document["rows"].push_back(ToJson(row));
  return absl::StrCat(document.dump(2), "\n");
}

}  // namespace tessera
