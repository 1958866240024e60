#ifndef TESSERA_REDISTRIBUTE_BYTES_SENT_H_
#define TESSERA_REDISTRIBUTE_BYTES_SENT_H_

#include <cstdint>

#include "tessera/redistribute/plan.h"

namespace tessera::internal {

// The most bytes that a rank sends in a step, by the direct algorithm. Pieces
// are uneven where cuts are, so this may be more than Step::bytes_received, and
// replicas share the work of sending, so it may be less. Where more than
// kMaxRanksAsked ranks scatter or exchange, and in a step that Verify would not
// pass, what the rank that receives the most gets.
//
// REQUIRES: before and after are layouts of one tensor, the axes those of
// before's mesh.
// COST: in the number of ranks that the step's axes span, and for an exchange
// in what each of all ranks sends.
inline constexpr int kMaxRanksAsked = 1024;
int64_t BytesSent(const Step& step);

}  // namespace tessera::internal

#endif  // TESSERA_REDISTRIBUTE_BYTES_SENT_H_
