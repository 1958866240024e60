#ifndef TESSERA_TOOLS_TESSERA_SVG_H_
#define TESSERA_TOOLS_TESSERA_SVG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::tools {

struct Point {
  double x = 0;
  double y = 0;
};

// A drawing, in pixels, y downwards. Colours are as SVG has them.
class Svg {
 public:
  struct TextStyle {
    double size = 12;
    absl::string_view colour = "#24292f";
    absl::string_view anchor = "start";  // middle, end
    bool bold = false;
    bool mono = false;
  };

  void Polygon(absl::Span<const Point> points, absl::string_view fill,
               absl::string_view stroke, double stroke_width = 1);
  void Line(Point from, Point to, absl::string_view stroke,
            double stroke_width = 1);
  // From left to right, with a head.
  void Arrow(Point from, double length, absl::string_view colour);
  // `at` is on the base line.
  void Text(Point at, absl::string_view text, const TextStyle& style);

  // How wide a text is, about: no font is asked.
  static double WidthOf(absl::string_view text, const TextStyle& style);

  // A fill of this document: white stripes, to go over another one.
  static constexpr absl::string_view kStripes = "url(#stripes)";

  // The document: what was drawn, on white.
  std::string Document(double width, double height) const;

 private:
  std::string body_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_SVG_H_
