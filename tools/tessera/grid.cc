#include "tools/tessera/grid.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/tensor/reduce_op.h"
#include "tools/tessera/boxes.h"

namespace tessera::tools {
namespace {

// "0-3,8,9": ascending ranks, three and more neighbours joined.
std::string RankList(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i >= 3) {
      parts.push_back(absl::StrCat(ranks[i], "-", ranks[end - 1]));
      i = end;
    } else {
      parts.push_back(absl::StrCat(ranks[i++]));
    }
  }
  return absl::StrJoin(parts, ",");
}

// " + ", " max ": what stands between those whose values are combined.
std::string Combines(const Layout& layout) {
  for (const Placement& placement : layout.placements()) {
    if (!placement.is_partial()) continue;
    if (IsLinear(placement.op())) return " + ";
    return absl::StrCat(" ", ReduceOpName(placement.op()), " ");
  }
  return "";
}

// The coordinates along the Partial axes: ranks that differ in nothing else
// hold addends of the same.
MeshCoords PartialCoords(const Layout& layout, const MeshCoords& coords) {
  MeshCoords partial;
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (layout.placement(axis).is_partial()) partial.push_back(coords[axis]);
  }
  return partial;
}

// Ranks that hold the same elements.
using Holders = std::map<MeshCoords, std::vector<int>>;  // by PartialCoords

std::string Describe(const Holders& holders, const std::string& combines) {
  return absl::StrJoin(holders, combines, [](std::string* out, const auto& h) {
    absl::StrAppend(out, RankList(h.second));
  });
}

bool Before(const Interval& a, const Interval& b) {
  return std::make_pair(a.begin, a.end) < std::make_pair(b.begin, b.end);
}
struct BoxBefore {
  bool operator()(const Box& a, const Box& b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        Before);
  }
};
struct IntervalBefore {
  bool operator()(const Interval& a, const Interval& b) const {
    return Before(a, b);
  }
};

// What the ranks hold: the pieces of each dim, and who has which elements.
class Pieces {
 public:
  explicit Pieces(const Layout& layout)
      : combines_(Combines(layout)),
        is_ragged_(!layout.RaggedAxes().empty()),
        cuts_(layout.shape().num_dims()) {
    for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
      cuts_[dim] = {0, layout.shape().extent(dim)};
    }
    for (int rank = layout.mesh().offset(); rank < layout.mesh().end_rank();
         ++rank) {
      if (layout.mesh().Contains(rank)) Add(layout, rank);
    }
  }

  // The indices at which a dim is cut, its ends included.
  const std::set<int64_t>& cuts(int dim) const { return cuts_[dim]; }
  const std::vector<int>& empty_ranks() const { return empty_ranks_; }

  // What stands in the cell of this box, in lines.
  std::vector<std::string> CellOf(const Box& box) const {
    std::vector<std::string> lines;
    const auto cell = cells_.find(box);
    if (cell == cells_.end()) return lines;
    for (const auto& [flat, holders] : cell->second) {
      lines.push_back(Describe(holders, combines_));
      if (is_ragged_) absl::StrAppend(&lines.back(), ": ", flat.ToString());
    }
    return lines;
  }

 private:
  void Add(const Layout& layout, int rank) {
    const MeshCoords coords = layout.mesh().CoordsOf(rank).value();
    const Region region = layout.RegionAt(coords);
    if (region.num_elements() == 0) {
      empty_ranks_.push_back(rank);
      return;
    }
    for (size_t dim = 0; dim < region.box.size(); ++dim) {
      cuts_[dim].insert({region.box[dim].begin, region.box[dim].end});
    }
    const Box box(region.box.begin(), region.box.end());
    const Interval flat =
        region.flat.value_or(Interval{0, region.box_elements()});
    cells_[box][flat][PartialCoords(layout, coords)].push_back(rank);
  }

  std::string combines_;
  bool is_ragged_;
  std::vector<std::set<int64_t>> cuts_;
  std::vector<int> empty_ranks_;
  std::map<Box, std::map<Interval, Holders, IntervalBefore>, BoxBefore> cells_;
};

// The intervals between the cuts; of an extent of 0 the empty one.
std::vector<Interval> IntervalsOf(const std::set<int64_t>& cuts) {
  std::vector<Interval> intervals;
  for (auto it = cuts.begin(); std::next(it) != cuts.end(); ++it) {
    intervals.push_back({*it, *std::next(it)});
  }
  if (intervals.empty()) intervals.push_back({0, 0});
  return intervals;
}

std::string PadRight(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}
std::string PadLeft(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

using Cell = std::vector<std::string>;  // lines

// A grid with the row's and column's first index beside and above every line.
// Empty labels take no place.
std::string FormatGrid(const std::vector<std::string>& row_labels,
                       const std::vector<std::string>& column_labels,
                       const std::vector<std::vector<Cell>>& rows) {
  size_t margin = 0;
  for (const std::string& label : row_labels) {
    margin = std::max(margin, label.size());
  }
  std::string indent(margin == 0 ? 0 : margin + 1, ' ');
  std::vector<size_t> widths;
  for (size_t c = 0; c < rows[0].size(); ++c) {
    size_t width = column_labels.empty() ? 0 : column_labels[c].size();
    for (const auto& row : rows) {
      for (const std::string& line : row[c]) {
        width = std::max(width, line.size());
      }
    }
    widths.push_back(width);
  }

  std::string text;
  if (!column_labels.empty()) {
    text += indent;
    for (size_t c = 0; c < widths.size(); ++c) {
      text += PadRight(column_labels[c], widths[c] + 3);
    }
    text += column_labels.back() + "\n";
  }
  const auto append_rule = [&](size_t row) {
    if (margin > 0) text += PadLeft(row_labels[row], margin) + " ";
    for (size_t width : widths) text += "+" + std::string(width + 2, '-');
    text += "+\n";
  };
  for (size_t r = 0; r < rows.size(); ++r) {
    append_rule(r);
    size_t height = 1;
    for (const Cell& cell : rows[r]) height = std::max(height, cell.size());
    for (size_t line = 0; line < height; ++line) {
      text += indent;
      for (size_t c = 0; c < widths.size(); ++c) {
        const Cell& cell = rows[r][c];
        text +=
            "| " + PadRight(line < cell.size() ? cell[line] : "", widths[c]);
        text += " ";
      }
      text += "|\n";
    }
  }
  append_rule(rows.size());
  return text;
}

std::vector<std::string> LabelsOf(const std::vector<Interval>& intervals) {
  std::vector<std::string> labels;
  for (const Interval& interval : intervals) {
    labels.push_back(absl::StrCat(interval.begin));
  }
  labels.push_back(absl::StrCat(intervals.back().end));
  return labels;
}

// The grid of the last two dims, fewer where there are none, within what
// `leading` says of the others.
std::string GridWithin(const Pieces& pieces, const Box& leading, int num_dims) {
  const int shown = num_dims - static_cast<int>(leading.size());
  const std::vector<Interval> none = {{0, 0}};
  const auto intervals = [&](int from_the_end) {
    return shown >= from_the_end
               ? IntervalsOf(pieces.cuts(num_dims - from_the_end))
               : none;
  };
  const std::vector<Interval> rows = intervals(2);
  const std::vector<Interval> columns = intervals(1);
  std::vector<std::vector<Cell>> cells;
  for (const Interval& row : rows) {
    std::vector<Cell>& line = cells.emplace_back();
    for (const Interval& column : columns) {
      Box box = leading;
      if (shown >= 2) box.push_back(row);
      if (shown >= 1) box.push_back(column);
      line.push_back(pieces.CellOf(box));
    }
  }
  const std::vector<std::string> no_labels(rows.size() + 1);
  return FormatGrid(shown >= 2 ? LabelsOf(rows) : no_labels,
                    shown >= 1 ? LabelsOf(columns) : std::vector<std::string>(),
                    cells);
}

// All pieces of the dims in front of the last two.
std::vector<Box> LeadingBoxes(const Pieces& pieces, int num_dims) {
  std::vector<Box> boxes = {{}};
  for (int dim = 0; dim < num_dims - 2; ++dim) {
    std::vector<Box> longer;
    for (const Box& box : boxes) {
      for (const Interval& interval : IntervalsOf(pieces.cuts(dim))) {
        longer.push_back(box);
        longer.back().push_back(interval);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

}  // namespace

absl::StatusOr<std::string> DrawGrid(const Layout& layout) {
  if (layout.mesh().size() > kMostRanksInGrid) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a grid shows at most ", kMostRanksInGrid, " ranks, found ",
        layout.mesh().size(), " on mesh '", layout.mesh().ToString(), "'"));
  }
  const Pieces pieces(layout);
  const int num_dims = layout.shape().num_dims();
  std::vector<std::string> grids;
  for (const Box& leading : LeadingBoxes(pieces, num_dims)) {
    std::string heading;
    for (size_t dim = 0; dim < leading.size(); ++dim) {
      absl::StrAppend(&heading, dim == 0 ? "dim " : ", dim ", dim, " in ",
                      leading[dim].ToString());
    }
    if (!leading.empty()) absl::StrAppend(&heading, ":\n");
    grids.push_back(heading + GridWithin(pieces, leading, num_dims));
  }
  std::string text = absl::StrJoin(grids, "\n");
  if (!pieces.empty_ranks().empty()) {
    absl::StrAppend(&text, "holding nothing: ", RankList(pieces.empty_ranks()),
                    "\n");
  }
  return text;
}

}  // namespace tessera::tools
