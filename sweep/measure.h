#ifndef TESSERA_SWEEP_MEASURE_H_
#define TESSERA_SWEEP_MEASURE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tessera/placement/layout.h"
#include "tessera/sweep/cases.h"
#include "tessera/sweep/sweep.h"

namespace tessera::internal {

// The row of a combination: plans, executes and measures it. What cannot be
// planned or needs too much is skipped. ERRORS: those of communication.
absl::StatusOr<SweepRow> Measure(const SweepCase& sweep_case,
                                 const SweepSpec& spec);

// SweepRow::bytes of what leads from one layout to the other.
int64_t BytesThatMustMove(const Layout& from, const Layout& to);

}  // namespace tessera::internal

#endif  // TESSERA_SWEEP_MEASURE_H_
