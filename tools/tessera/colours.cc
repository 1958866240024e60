#include "tools/tessera/colours.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_format.h"

namespace tessera::tools {

std::string Rgb::Shaded(double amount) const {
  const auto channel = [&](double c) {
    const double end = amount > 0 ? 255 : 0;
    return static_cast<int>(std::lround(c + (end - c) * std::abs(amount)));
  };
  return absl::StrFormat("#%02x%02x%02x", channel(red), channel(green),
                         channel(blue));
}

Rgb ColourOf(int index) {
  static constexpr Rgb kFirst[] = {
      {78, 121, 167},  {242, 142, 43}, {89, 161, 79},   {225, 87, 89},
      {118, 183, 178}, {237, 201, 72}, {176, 122, 161}, {156, 117, 95}};
  if (index < static_cast<int>(std::size(kFirst))) return kFirst[index];
  const double hue = std::fmod(index * 137.508, 360.0);
  const double lightness = index % 2 == 0 ? 0.62 : 0.48;
  const auto channel = [&](double shift) {
    const double k = std::fmod(shift + hue / 30, 12.0);
    const double a = 0.5 * std::min(lightness, 1 - lightness);
    return 255 *
           (lightness - a * std::max(-1.0, std::min({k - 3, 9 - k, 1.0})));
  };
  return {channel(0), channel(8), channel(4)};
}

}  // namespace tessera::tools
