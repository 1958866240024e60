#ifndef TESSERA_TESTS_REDISTRIBUTE_LEAST_WORKSPACE_H_
#define TESSERA_TESTS_REDISTRIBUTE_LEAST_WORKSPACE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"

namespace tessera::testing {

// The least workspace limit, in bytes, for which MakePlan says that there is a
// plan: none, or what its error names where none is too little.
absl::StatusOr<int64_t> LeastWorkspace(const Layout& source,
                                       const Layout& target,
                                       const Topology& topology);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_LEAST_WORKSPACE_H_
