#ifndef TESSERA_TOOLS_TESSERA_COLOURS_H_
#define TESSERA_TOOLS_TESSERA_COLOURS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tessera::tools {

// What the pictures have in common, as SVG has colours.
inline constexpr absl::string_view kInk = "#24292f";
inline constexpr absl::string_view kFaint = "#6e7781";
inline constexpr absl::string_view kOutline = "#afb8c1";
inline constexpr absl::string_view kPaper = "#f6f8fa";

struct Rgb {
  double red, green, blue;

  // Towards white, or with a negative amount towards black.
  std::string Shaded(double amount) const;
};

// Eight colours that are told apart with ease, then the colour circle in steps
// of the golden angle.
Rgb ColourOf(int index);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_COLOURS_H_
