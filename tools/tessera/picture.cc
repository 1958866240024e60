#include "tools/tessera/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tools/tessera/boxes.h"
#include "tools/tessera/colours.h"
#include "tools/tessera/svg.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

constexpr double kMargin = 20;       // around the picture
constexpr double kLongSide = 56;     // of a tensor
constexpr double kShortSide = 32;    // at least
constexpr double kBarHeight = 18;    // of a 1-d tensor
constexpr double kGap = 14;          // between ranks
constexpr double kRankWidth = 44;    // of a rank's label
constexpr double kRankLabel = 14;    // above each
constexpr double kTitle = 24;        // above each panel
constexpr double kArrowGap = 124;    // between panels
constexpr double kMostWidth = 1300;  // of a line of panels
constexpr double kDepth = 0.5;       // of a pixel to the back, per axis

constexpr Svg::TextStyle kHeading = {.size = 13, .bold = true};
constexpr Svg::TextStyle kLayoutText = {.size = 12, .mono = true};
constexpr Svg::TextStyle kStepText = {
    .size = 12, .anchor = "middle", .bold = true};
constexpr Svg::TextStyle kFigure = {
    .size = 10, .colour = kFaint, .anchor = "middle"};
constexpr Svg::TextStyle kNote = {.size = 10, .colour = kFaint};
constexpr Svg::TextStyle kAxisLabel = {
    .size = 10, .colour = kFaint, .anchor = "end"};

// How a tensor's indices become points: up to three dims as depth, height and
// width, missing ones in front of them of extent 1.
class Projection {
 public:
  explicit Projection(const Shape& shape) {
    const int num_dims = shape.num_dims();
    for (int dim = 0; dim < num_dims; ++dim) {
      extents_[3 - num_dims + dim] =
          std::max<double>(1, static_cast<double>(shape.extent(dim)));
    }
    const double largest = *std::max_element(extents_.begin(), extents_.end());
    for (size_t i = 0; i < extents_.size(); ++i) {
      sizes_[i] = std::max(kShortSide, kLongSide * extents_[i] / largest);
    }
    if (num_dims < 3) sizes_[0] = 0;
    if (num_dims < 2) sizes_[1] = kBarHeight;
    if (num_dims < 1) sizes_[2] = kBarHeight;
  }

  double width() const { return sizes_[2] + kDepth * sizes_[0]; }
  double height() const { return sizes_[1] + kDepth * sizes_[0]; }

  // Corners in depth, height and width, as fractions of the tensor.
  struct Corner {
    double depth, height, width;
  };
  Point At(Point origin, const Corner& corner) const {
    const double back = kDepth * sizes_[0];
    return {origin.x + corner.width * sizes_[2] + corner.depth * back,
            origin.y + back + corner.height * sizes_[1] - corner.depth * back};
  }

  struct Block {
    Corner from, to;
  };
  Block BlockOf(const Box& box) const {
    std::array<double, 3> from = {0, 0, 0};
    std::array<double, 3> to = {1, 1, 1};
    for (size_t i = 0; i < box.size(); ++i) {
      const size_t at = 3 - box.size() + i;
      from[at] = static_cast<double>(box[i].begin) / extents_[at];
      to[at] = static_cast<double>(box[i].end) / extents_[at];
    }
    return {{from[0], from[1], from[2]}, {to[0], to[1], to[2]}};
  }
  bool is_solid() const { return sizes_[0] > 0; }

 private:
  std::array<double, 3> extents_ = {1, 1, 1};
  std::array<double, 3> sizes_ = {};
};

// The faces of a block that are seen, each as its own shade.
void DrawBlock(Svg& svg, const Projection& projection, Point origin,
               const Projection::Block& block, absl::string_view front,
               absl::string_view top, absl::string_view side,
               absl::string_view stroke) {
  const auto at = [&](double depth, double height, double width) {
    return projection.At(origin, {depth, height, width});
  };
  const Projection::Corner& a = block.from;
  const Projection::Corner& b = block.to;
  constexpr double kThin = 0.7;
  svg.Polygon({at(a.depth, a.height, a.width), at(a.depth, a.height, b.width),
               at(a.depth, b.height, b.width), at(a.depth, b.height, a.width)},
              front, stroke, kThin);
  if (!projection.is_solid()) return;
  svg.Polygon({at(a.depth, a.height, a.width), at(b.depth, a.height, a.width),
               at(b.depth, a.height, b.width), at(a.depth, a.height, b.width)},
              top, stroke, kThin);
  svg.Polygon({at(a.depth, a.height, b.width), at(b.depth, a.height, b.width),
               at(b.depth, b.height, b.width), at(a.depth, b.height, b.width)},
              side, stroke, kThin);
}

constexpr Projection::Block kWhole = {{0, 0, 0}, {1, 1, 1}};

// What one rank holds of the tensor.
void DrawPiece(Svg& svg, const Projection& projection, Point origin,
               const Region& region, int rank, bool is_partial) {
  DrawBlock(svg, projection, origin, kWhole, kPaper, kPaper, kPaper, kOutline);
  std::vector<Projection::Block> blocks;
  for (const Box& box : BoxesOf(region)) {
    blocks.push_back(projection.BlockOf(box));
  }
  // The farther ones first: to the back, below.
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const auto& a, const auto& b) {
                     return std::make_pair(-a.from.depth, -a.from.height) <
                            std::make_pair(-b.from.depth, -b.from.height);
                   });
  const Rgb colour = ColourOf(rank);
  for (const Projection::Block& block : blocks) {
    const std::string edge = colour.Shaded(-0.35);
    DrawBlock(svg, projection, origin, block, colour.Shaded(0),
              colour.Shaded(0.3), colour.Shaded(-0.18), edge);
    if (is_partial) {
      DrawBlock(svg, projection, origin, block, Svg::kStripes, Svg::kStripes,
                Svg::kStripes, edge);
    }
  }
  // The edges of the whole in front of it.
  DrawBlock(svg, projection, origin, kWhole, "none", "none", "none", kOutline);
}

// All ranks of a layout, at their places in the mesh.
class Panel {
 public:
  explicit Panel(const Layout& layout)
      : layout_(layout),
        projection_(layout.shape()),
        title_(layout.PlacementsToString()) {
    const DeviceMesh& mesh = layout.mesh();
    columns_ = mesh.num_axes() == 0 ? 1 : mesh.axes().back().size;
    // One axis alone goes downwards.
    if (mesh.num_axes() == 1) columns_ = 1;
    rows_ = mesh.size() / columns_;
    for (int row = 0; row < rows_; ++row) {
      label_width_ =
          std::max(label_width_, Svg::WidthOf(RowLabel(row), kAxisLabel) + 8);
    }
  }

  double width() const {
    const double ranks = columns_ * ColumnWidth() - kGap;
    return std::max(label_width_ + ranks, Svg::WidthOf(title_, kLayoutText));
  }
  double height() const {
    return kTitle + ColumnLabelHeight() + rows_ * RowHeight() - kGap;
  }
  // Where arrows go, from the top.
  double middle() const { return (kTitle + height()) / 2; }

  void Draw(Svg& svg, Point origin) const {
    svg.Text({origin.x, origin.y + 12}, title_, kLayoutText);
    const DeviceMesh& mesh = layout_.mesh();
    for (int i = 0; i < mesh.size(); ++i) {
      const int row = i / columns_;
      const int column = i % columns_;
      const Point at = {
          origin.x + label_width_ + column * ColumnWidth(),
          origin.y + kTitle + ColumnLabelHeight() + row * RowHeight()};
      const MeshCoords coords = CoordsOf(i);
      const int rank = mesh.RankAt(coords);
      const Svg::TextStyle column_label = {.size = 10, .colour = kFaint};
      if (row == 0 && ColumnLabelHeight() > 0) {
        svg.Text({at.x, at.y - 2},
                 absl::StrCat(mesh.axes().back().name, " ", column),
                 column_label);
      }
      if (column == 0) {
        svg.Text({at.x - 8, at.y + kRankLabel + projection_.height() / 2 + 4},
                 RowLabel(row), kAxisLabel);
      }
      const std::string colour = ColourOf(rank).Shaded(-0.25);
      svg.Text({at.x, at.y + kRankLabel - 3}, absl::StrCat("rank ", rank),
               {.size = 10, .colour = colour, .bold = true});
      DrawPiece(svg, projection_, {at.x, at.y + kRankLabel},
                layout_.RegionAt(coords), rank, layout_.HasPartial());
    }
  }

 private:
  double ColumnLabelHeight() const {
    return layout_.mesh().num_axes() >= 2 ? 14 : 0;
  }
  double ColumnWidth() const {
    return std::max(projection_.width(), kRankWidth) + kGap;
  }
  double RowHeight() const { return kRankLabel + projection_.height() + kGap; }

  // Row-major, the last axis fastest.
  MeshCoords CoordsOf(int index) const {
    const DeviceMesh& mesh = layout_.mesh();
    MeshCoords coords(mesh.num_axes(), 0);
    for (int axis = mesh.num_axes() - 1; axis >= 0; --axis) {
      coords[axis] = index % mesh.axis(axis).size;
      index /= mesh.axis(axis).size;
    }
    return coords;
  }

  // "dp 0", "pp 1, dp 0": the coordinates that all ranks of a row have.
  std::string RowLabel(int row) const {
    const DeviceMesh& mesh = layout_.mesh();
    const MeshCoords coords = CoordsOf(row * columns_);
    const int shown =
        mesh.num_axes() == 1 ? 1 : std::max(0, mesh.num_axes() - 1);
    std::vector<std::string> parts;
    for (int axis = 0; axis < shown; ++axis) {
      parts.push_back(absl::StrCat(mesh.axis(axis).name, " ", coords[axis]));
    }
    return absl::StrJoin(parts, ", ");
  }

  Layout layout_;
  Projection projection_;
  std::string title_;
  int rows_ = 1;
  int columns_ = 1;
  double label_width_ = 0;
};

absl::Status CheckCanBeDrawn(const Layout& layout) {
  if (layout.shape().num_dims() > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("--svg: a picture shows tensors of at most 3 dims, found ",
                     layout.meta().ToString()));
  }
  if (layout.mesh().size() > kMostRanksInPicture) {
    return absl::InvalidArgumentError(
        absl::StrCat("--svg: a picture shows at most ", kMostRanksInPicture,
                     " ranks, found ", layout.mesh().size(), " on mesh '",
                     layout.mesh().ToString(), "'"));
  }
  return absl::OkStatus();
}

void DrawStep(Svg& svg, Point from, const Step& step) {
  constexpr double kInset = 14;
  const double length = kArrowGap - 2 * kInset;
  const double middle = from.x + kArrowGap / 2;
  svg.Text({middle, from.y - 8}, step.Name(), kStepText);
  svg.Arrow({from.x + kInset, from.y}, length, kInk);
  if (!Communicates(step.kind)) {
    svg.Text({middle, from.y + 16}, "local", kFigure);
    return;
  }
  svg.Text({middle, from.y + 16}, FormatBytes(step.bytes_received), kFigure);
  svg.Text({middle, from.y + 29},
           absl::StrFormat("%.1f us", static_cast<double>(step.time_ps) / 1e6),
           kFigure);
}

// Layouts and the steps between them, in lines.
std::string DrawAll(const std::string& heading,
                    const std::vector<Layout>& layouts,
                    absl::Span<const Step> steps) {
  Svg svg;
  svg.Text({kMargin, kMargin + 12}, heading, kHeading);
  double right = kMargin + Svg::WidthOf(heading, kHeading);
  Point at = {kMargin, kMargin + 34};
  double line_height = 0;
  bool has_partial = false;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const Panel panel(layouts[i]);
    const double gap = i == 0 ? 0 : kArrowGap;
    if (i > 0 && at.x + gap + panel.width() > kMostWidth) {
      at = {kMargin, at.y + line_height + 2 * kGap};
      line_height = 0;
    }
    if (i > 0) DrawStep(svg, {at.x, at.y + panel.middle()}, steps[i - 1]);
    panel.Draw(svg, {at.x + gap, at.y});
    at.x += gap + panel.width();
    right = std::max(right, at.x);
    line_height = std::max(line_height, panel.height());
    has_partial = has_partial || layouts[i].HasPartial();
  }
  double bottom = at.y + line_height;
  if (has_partial) {
    bottom += 24;
    const std::string note = "striped: Partial, to be combined";
    svg.Text({kMargin, bottom}, note, kNote);
    right = std::max(right, kMargin + Svg::WidthOf(note, kNote));
  }
  return svg.Document(std::ceil(right + kMargin), std::ceil(bottom + kMargin));
}

std::string HeadingOf(const Layout& layout) {
  return absl::StrCat(layout.meta().ToString(), " on ",
                      layout.mesh().ToString());
}

}  // namespace

absl::StatusOr<std::string> DrawLayout(const Layout& layout) {
  TESSERA_RETURN_IF_ERROR(CheckCanBeDrawn(layout));
  return DrawAll(HeadingOf(layout), {layout}, {});
}

absl::StatusOr<std::string> DrawPlan(const Plan& plan) {
  std::vector<Layout> layouts = {plan.source()};
  for (const Step& step : plan.steps()) layouts.push_back(step.after);
  for (const Layout& layout : layouts) {
    TESSERA_RETURN_IF_ERROR(CheckCanBeDrawn(layout));
  }
  std::string heading = HeadingOf(plan.source());
  if (plan.target().mesh() != plan.source().mesh()) {
    absl::StrAppend(&heading, ", then ", plan.target().mesh().ToString());
  }
  return DrawAll(heading, layouts, plan.steps());
}

}  // namespace tessera::tools
