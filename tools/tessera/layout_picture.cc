#include "tools/tessera/layout_picture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/tessera/colours.h"
#include "tools/tessera/svg.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostParts = 64;
constexpr int kMostColours = 24;

constexpr double kMargin = 20;      // around the picture
constexpr double kBarWidth = 900;   // of a part
constexpr double kLabelWidth = 64;  // of ranks
constexpr double kCutHeight = 30;   // where parts are left out
constexpr double kSwatch = 11;      // a side of
constexpr double kLegendRow = 18;

constexpr absl::string_view kPadding = "#afb8c1";
constexpr Rgb kRest = {140, 149, 159};  // of tensors without a colour

constexpr Svg::TextStyle kHeading = {.size = 13, .bold = true};
constexpr Svg::TextStyle kNote = {.size = 10, .colour = kFaint};
constexpr Svg::TextStyle kMiddleNote = {
    .size = 10, .colour = kFaint, .anchor = "middle"};
constexpr Svg::TextStyle kRankText = {
    .size = 9, .colour = kFaint, .anchor = "end"};
constexpr Svg::TextStyle kName = {.size = 10, .mono = true};

// Tensors that have a colour in common.
struct Kind {
  std::string name;  // with '*' for numbers
  Shape shape;
  int64_t count = 0;
  int64_t elements = 0;
};

bool IsNumber(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, absl::ascii_isdigit);
}

std::string WithoutNumbers(absl::string_view name) {
  std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  for (absl::string_view& part : parts) {
    if (IsNumber(part)) part = "*";
  }
  return absl::StrJoin(parts, ".");
}

// The kinds of tensors, those of the most elements first, and whose colour each
// tensor has.
struct Kinds {
  std::vector<Kind> kinds;
  std::vector<int> of_tensor;
};

Kinds KindsOf(const FlatLayout& layout) {
  std::map<std::pair<std::string, std::string>, int> found;
  std::vector<Kind> kinds;
  std::vector<int> of_tensor;
  for (int i = 0; i < layout.num_tensors(); ++i) {
    const FlatLayout::Tensor& tensor = layout.tensor(i);
    const std::string name = WithoutNumbers(tensor.name);
    const auto [at, is_new] = found.try_emplace({name, tensor.shape.ToString()},
                                                static_cast<int>(kinds.size()));
    if (is_new) kinds.push_back({name, tensor.shape});
    Kind& kind = kinds[at->second];
    ++kind.count;
    kind.elements += tensor.shape.num_elements();
    of_tensor.push_back(at->second);
  }
  std::vector<int> order(kinds.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  absl::c_stable_sort(order, [&](int a, int b) {
    return kinds[a].elements > kinds[b].elements;
  });
  Kinds sorted;
  std::vector<int> place(kinds.size());
  for (int kind : order) {
    place[kind] = static_cast<int>(sorted.kinds.size());
    sorted.kinds.push_back(std::move(kinds[kind]));
  }
  for (int kind : of_tensor) sorted.of_tensor.push_back(place[kind]);
  return sorted;
}

Rgb ColourOfKind(int kind) {
  return kind < kMostColours ? ColourOf(kind) : kRest;
}

class Drawing {
 public:
  Drawing(const std::string& heading, const FlatLayout& layout)
      : heading_(heading),
        layout_(layout),
        kinds_(KindsOf(layout)),
        padding_(layout.Padding()) {}

  std::string Draw() {
    svg_.Text({kMargin, kMargin + 12}, heading_, kHeading);
    svg_.Text({kMargin, kMargin + 30}, Summary(), kNote);
    y_ = kMargin + 46;
    DrawParts();
    DrawLegend();
    return svg_.Document(kMargin + kLabelWidth + kBarWidth + kMargin,
                         std::ceil(y_ + kMargin));
  }

 private:
  std::string Summary() const {
    const int64_t elements = layout_.tensor_elements();
    return absl::StrCat(elements, " elements, ", layout_.per_rank_elements(),
                        " per rank, padding ",
                        FormatPercent(layout_.padding_elements(), elements),
                        "% (bound ",
                        FormatPercent(layout_.padding_bound(), elements), "%)");
  }

  double Pitch() const {
    const int64_t shown = std::min(layout_.ranks(), kMostParts);
    return std::clamp(480.0 / static_cast<double>(shown), 10.0, 28.0);
  }

  void DrawParts() {
    const int64_t ranks = layout_.ranks();
    if (ranks <= kMostParts) return DrawRanks(0, ranks);
    DrawRanks(0, kMostParts / 2);
    svg_.Text({kMargin + kLabelWidth + kBarWidth / 2, y_ + kCutHeight / 2 + 2},
              absl::StrCat("ranks ", kMostParts / 2, " to ",
                           ranks - kMostParts / 2 - 1, " are not shown"),
              kMiddleNote);
    y_ += kCutHeight;
    DrawRanks(ranks - kMostParts / 2, ranks);
  }

  void DrawRanks(int64_t begin, int64_t end) {
    const double pitch = Pitch();
    const int64_t per_label = pitch < 12 ? 8 : 1;
    for (int64_t rank = begin; rank < end; ++rank) {
      if ((rank - begin) % per_label == 0 || rank + 1 == end) {
        svg_.Text({kMargin + kLabelWidth - 8, y_ + pitch / 2 + 2},
                  absl::StrCat("rank ", rank), kRankText);
      }
      DrawPart(rank, pitch - 2);
      y_ += pitch;
    }
  }

  void DrawPart(int64_t rank, double height) {
    const int64_t size = layout_.per_rank_elements();
    const Interval part = {rank * size, (rank + 1) * size};
    for (const Interval& stretch : padding_) {
      const Interval piece = Intersect(stretch, part);
      if (piece.empty()) continue;
      DrawPiece(piece, part, height, kPadding, "none");
      DrawPiece(piece, part, height, Svg::kStripes, "none");
    }
    for (int i : layout_.memory_order()) {
      const Interval piece = Intersect(layout_.extent(i), part);
      if (piece.empty()) continue;
      const Rgb colour = ColourOfKind(kinds_.of_tensor[i]);
      DrawPiece(piece, part, height, colour.Shaded(0), colour.Shaded(-0.35));
    }
    DrawPiece(part, part, height, "none", kOutline);
  }

  void DrawPiece(const Interval& piece, const Interval& part, double height,
                 absl::string_view fill, absl::string_view stroke) {
    const double scale = kBarWidth / static_cast<double>(part.size());
    const double x = kMargin + kLabelWidth;
    const double left =
        x + scale * static_cast<double>(piece.begin - part.begin);
    const double right =
        x + scale * static_cast<double>(piece.end - part.begin);
    DrawBox({left, y_}, right - left, height, fill, stroke);
  }

  void DrawBox(Point at, double width, double height, absl::string_view fill,
               absl::string_view stroke) {
    constexpr double kThin = 0.5;
    svg_.Polygon({at,
                  {at.x + width, at.y},
                  {at.x + width, at.y + height},
                  {at.x, at.y + height}},
                 fill, stroke, kThin);
  }

  // Two columns, one below the other.
  void DrawLegend() {
    y_ += 14;
    const size_t shown = std::min<size_t>(kinds_.kinds.size(), kMostColours);
    std::vector<Kind> rows(kinds_.kinds.begin(), kinds_.kinds.begin() + shown);
    if (shown < kinds_.kinds.size()) rows.push_back(Rest());
    const size_t lines = (rows.size() + 2) / 2;  // with the padding's
    const auto place = [&](size_t i) -> Point {
      const double column = i < lines ? 0 : (kLabelWidth + kBarWidth) / 2;
      return {kMargin + column,
              y_ + kLegendRow * static_cast<double>(i % lines)};
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      const Rgb colour = ColourOfKind(static_cast<int>(i));
      DrawLegendRow(place(i), colour.Shaded(0), colour.Shaded(-0.35),
                    rows[i].name, Describe(rows[i]));
    }
    const Point last = place(rows.size());
    DrawLegendRow(last, kPadding, kPadding, "padding",
                  absl::StrCat(layout_.padding_elements(), " elements"));
    DrawBox(last, kSwatch, kSwatch, Svg::kStripes, "none");
    y_ += kLegendRow * static_cast<double>(lines);
  }

  Kind Rest() const {
    Kind rest;
    for (size_t i = kMostColours; i < kinds_.kinds.size(); ++i) {
      rest.count += kinds_.kinds[i].count;
      rest.elements += kinds_.kinds[i].elements;
    }
    rest.name = absl::StrCat(rest.count, " smaller ones");
    return rest;
  }

  // "256 x [2048,7168], 32.67%"
  std::string Describe(const Kind& kind) const {
    const std::string percent = absl::StrCat(
        FormatPercent(kind.elements, layout_.tensor_elements()), "%");
    if (kind.elements != kind.count * kind.shape.num_elements()) return percent;
    return absl::StrCat(kind.count > 1 ? absl::StrCat(kind.count, " x ") : "",
                        kind.shape.ToString(), ", ", percent);
  }

  void DrawLegendRow(Point at, absl::string_view fill, absl::string_view edge,
                     const std::string& name, const std::string& note) {
    DrawBox(at, kSwatch, kSwatch, fill, edge);
    const double x = at.x + kSwatch + 7;
    svg_.Text({x, at.y + 9}, name, kName);
    svg_.Text({x + Svg::WidthOf(name, kName) + 8, at.y + 9}, note, kNote);
  }

  const std::string heading_;
  const FlatLayout& layout_;
  const Kinds kinds_;
  const std::vector<Interval> padding_;
  Svg svg_;
  double y_ = 0;  // of what comes next
};

}  // namespace

std::string DrawFlatLayout(const std::string& heading,
                           const FlatLayout& layout) {
  return Drawing(heading, layout).Draw();
}

}  // namespace tessera::tools
