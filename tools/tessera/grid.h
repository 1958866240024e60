#ifndef TESSERA_TOOLS_TESSERA_GRID_H_
#define TESSERA_TOOLS_TESSERA_GRID_H_

#include <string>

#include "absl/status/statusor.h"
#include "tessera/placement/layout.h"

namespace tessera::tools {

// Who holds what, for terminals: the tensor as a grid of its pieces, with the
// indices at which it is cut. Of more than two dims a grid for each piece of
// the leading ones.
//
//            0      3      6
//          0 +------+------+
//            | 0    | 1    |
//          4 +------+------+
//            | 2    | 3    |
//          8 +------+------+
//
// A cell names its ranks: "0-3" and "0,4" hold the same; "0 + 4" hold addends,
// or whatever the op combines ("0 max 4"). Beside a ragged cut a cell has a
// line for each piece of its flattening: "0: [0,7)". Ranks that hold nothing
// stand below.
//
// ERRORS: InvalidArgument for more than kMostRanksInGrid ranks.
inline constexpr int kMostRanksInGrid = 1024;
absl::StatusOr<std::string> DrawGrid(const Layout& layout);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_GRID_H_
