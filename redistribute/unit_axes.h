#ifndef TESSERA_REDISTRIBUTE_UNIT_AXES_H_
#define TESSERA_REDISTRIBUTE_UNIT_AXES_H_

#include "tessera/placement/layout.h"

namespace tessera::internal {

// `layout` with R along the axes of size 1, ragged ones aside: another name
// for the same.
Layout WithoutUnitAxes(const Layout& layout);

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_UNIT_AXES_H_
