#include "tools/tessera/table.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::tools {

std::string Align(absl::Span<const Row> rows) {
  std::vector<int> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    absl::StrAppendFormat(&text, "%-*s", widths[0], row[0]);
    for (size_t i = 1; i < row.size(); ++i) {
      absl::StrAppendFormat(&text, "  %*s", widths[i], row[i]);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace tessera::tools
