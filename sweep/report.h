#ifndef TESSERA_SWEEP_REPORT_H_
#define TESSERA_SWEEP_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "tessera/sweep/sweep.h"

// What a sweep found out, as text. Times are in microseconds, bandwidths in
// GB/s (10^9 bytes).

namespace tessera {

// For people: a line per row below one for the mesh and the tensor, and at the
// end what was skipped and why, alike reasons together. Layouts lose what goes
// without saying: "P S0" is "[P(sum), S(0)]". At most 100 columns wide for up
// to 3 axes that shard in mesh order.
std::string SweepTable(absl::Span<const SweepRow> rows);

// A line with the names of the columns, then one per row (RFC 4180); figures
// that there are not stay empty.
std::string SweepCsv(absl::Span<const SweepRow> rows);

// {"version": 1, "rows": [...]}: an object per row with the columns of the CSV
// as keys; figures that there are not are null.
std::string SweepJson(absl::Span<const SweepRow> rows);

}  // namespace tessera

#endif  // TESSERA_SWEEP_REPORT_H_
