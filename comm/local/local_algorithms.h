#ifndef TESSERA_COMM_LOCAL_LOCAL_ALGORITHMS_H_
#define TESSERA_COMM_LOCAL_LOCAL_ALGORITHMS_H_

#include <cstdint>

#include "tessera/comm/calls.h"

namespace tessera::internal {

// Pure functions of the calls of one operation; all memory is readable and
// writable by the caller.

// An operation is done in parts, one per rank, which may run in any order or at
// the same time. They write to different places, and none writes where another
// reads: the part of `rank` writes its own memory, that of an all-reduce a
// piece of everybody's. REQUIRES: agreement.
void RunPart(Calls calls, int rank);

// All parts, with the same result bit by bit.
void RunAlone(Calls calls);

// Bytes that all members together send and receive, their own included: a
// measure of the work.
int64_t TotalBytes(Calls calls);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_LOCAL_LOCAL_ALGORITHMS_H_
