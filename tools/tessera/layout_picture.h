#ifndef TESSERA_TOOLS_TESSERA_LAYOUT_PICTURE_H_
#define TESSERA_TOOLS_TESSERA_LAYOUT_PICTURE_H_

#include <string>

#include "tessera/dbuffer/flat_layout.h"

namespace tessera::tools {

// An SVG document: the parts of a flat layout as bars, one below the other,
// with the tensors in them, and what the colours mean. Tensors whose names
// differ in numbers only, as 'experts.0.w' and 'experts.1.w', have one colour.
// Of more than 64 parts the first and the last 32 are shown.
std::string DrawFlatLayout(const std::string& heading,
                           const FlatLayout& layout);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_LAYOUT_PICTURE_H_
