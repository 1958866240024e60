#include "tools/tessera/svg.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace tessera::tools {
namespace {

// One digit behind the point, none where that is 0.
std::string Number(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

}  // namespace

void Svg::Polygon(absl::Span<const Point> points, absl::string_view fill,
                  absl::string_view stroke, double stroke_width) {
  absl::StrAppend(&body_, "<polygon points=\"");
  const char* between = "";
  for (const Point& p : points) {
    absl::StrAppend(&body_, between, Number(p.x), ",", Number(p.y));
    between = " ";
  }
  absl::StrAppend(&body_, "\" fill=\"", fill, "\" stroke=\"", stroke,
                  "\" stroke-width=\"", Number(stroke_width),
                  "\" stroke-linejoin=\"round\"/>\n");
}

void Svg::Line(Point from, Point to, absl::string_view stroke,
               double stroke_width) {
  absl::StrAppend(&body_, "<line x1=\"", Number(from.x), "\" y1=\"",
                  Number(from.y), "\" x2=\"", Number(to.x), "\" y2=\"",
                  Number(to.y), "\" stroke=\"", stroke, "\" stroke-width=\"",
                  Number(stroke_width), "\"/>\n");
}

void Svg::Arrow(Point from, double length, absl::string_view colour) {
  constexpr double kHead = 7;
  const double tip = from.x + length;
  Line(from, {tip - kHead, from.y}, colour, 1.5);
  Polygon({{tip, from.y},
           {tip - kHead, from.y - kHead / 2},
           {tip - kHead, from.y + kHead / 2}},
          colour, colour);
}

void Svg::Text(Point at, absl::string_view text, const TextStyle& style) {
  absl::StrAppend(&body_, "<text x=\"", Number(at.x), "\" y=\"", Number(at.y),
                  "\" font-size=\"", Number(style.size), "\" fill=\"",
                  style.colour, "\" text-anchor=\"", style.anchor, "\"",
                  style.bold ? " font-weight=\"bold\"" : "",
                  style.mono ? " class=\"mono\"" : "", ">",
                  absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}}),
                  "</text>\n");
}

double Svg::WidthOf(absl::string_view text, const TextStyle& style) {
  const double per_character = style.mono ? 0.61 : style.bold ? 0.62 : 0.56;
  return static_cast<double>(text.size()) * style.size * per_character;
}

std::string Svg::Document(double width, double height) const {
  const std::string size = absl::StrCat("width=\"", Number(width),
                                        "\" height=\"", Number(height), "\"");
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" ", size, " viewBox=\"0 0 ",
      Number(width), " ", Number(height), "\">\n",
      "<style>text{font-family:'DejaVu Sans',Verdana,sans-serif}"
      ".mono{font-family:'DejaVu Sans Mono',Menlo,monospace}</style>\n"
      "<defs><pattern id=\"stripes\" width=\"5\" height=\"5\" "
      "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
      "<rect width=\"2\" height=\"5\" fill=\"#ffffff\"/></pattern></defs>\n"
      "<rect ",
      size, " fill=\"#ffffff\"/>\n", body_, "</svg>\n");
}

}  // namespace tessera::tools
