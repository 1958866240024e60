#ifndef TESSERA_TESTS_REDISTRIBUTE_STEP_RULES_H_
#define TESSERA_TESTS_REDISTRIBUTE_STEP_RULES_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/plan.h"

namespace tessera::testing {

// A kind of step and the mesh axes that it takes, in order.
struct NamedStep {
  StepKind kind;
  std::vector<int> axes;
};

// The step that leads from one layout to the other by the rules of edges.h, no
// exchange, or nullopt where there is none. Compares layouts; knows nothing of
// how edges are enumerated.
std::optional<NamedStep> LegalStep(const Layout& before, const Layout& after);

// The step of a kind along these axes, with the figures that it should have,
// found by counting elements. Without a time.
Step MakeStep(StepKind kind, absl::Span<const int> axes, const Layout& before,
              const Layout& after);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_REDISTRIBUTE_STEP_RULES_H_
