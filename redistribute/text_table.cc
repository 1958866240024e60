#include "tessera/redistribute/text_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::internal {

std::string FormatTable(absl::Span<const TableRow> rows, size_t text_columns) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows.front().size());
  for (const TableRow& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  for (const TableRow& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&text, c == 0 ? "" : "  ",
                      c < text_columns ? row[c] + padding : padding + row[c]);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string FormatMicroseconds(int64_t time_ps) {
  return absl::StrFormat("%.1f", static_cast<double>(time_ps) / 1e6);
}

}  // namespace tessera::internal
