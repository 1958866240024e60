#ifndef TESSERA_REDISTRIBUTE_TEXT_TABLE_H_
#define TESSERA_REDISTRIBUTE_TEXT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tessera::internal {

using TableRow = std::vector<std::string>;

// The rows as lines with aligned columns: the first `text_columns` of them to
// the left, the others, which are numbers, to the right.
// REQUIRES: all rows have as many columns as the first.
std::string FormatTable(absl::Span<const TableRow> rows, size_t text_columns);

// "203.6"
std::string FormatMicroseconds(int64_t time_ps);

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_TEXT_TABLE_H_
