#ifndef TESSERA_TOOLS_TESSERA_TABLE_H_
#define TESSERA_TOOLS_TESSERA_TABLE_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tessera::tools {

// A row of a table: the text of each cell.
using Row = std::vector<std::string>;

// The rows as lines, the first column to the left, the others to the right.
// REQUIRES: at least one row; all have as many cells, at least one.
std::string Align(absl::Span<const Row> rows);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_TABLE_H_
