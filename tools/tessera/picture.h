#ifndef TESSERA_TOOLS_TESSERA_PICTURE_H_
#define TESSERA_TOOLS_TESSERA_PICTURE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"

namespace tessera::tools {

// Pictures of who holds what, as SVG. Every rank has a colour and, at its place
// in the mesh (the last axis to the right, the others downwards), an outline of
// the whole tensor in which its piece is filled: a bar for 1-d tensors, a
// rectangle, a cuboid with the first dim going to the back. Striped pieces are
// Partial: addends of the value, or whatever the op combines.
//
// ERRORS: InvalidArgument for tensors of more than 3 dims, or more than
// kMostRanksInPicture ranks.
inline constexpr int kMostRanksInPicture = 64;

absl::StatusOr<std::string> DrawLayout(const Layout& layout);

// Source, steps and what each leaves, from left to right, in several lines
// where there are many.
absl::StatusOr<std::string> DrawPlan(const Plan& plan);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_PICTURE_H_
