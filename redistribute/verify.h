#ifndef TESSERA_REDISTRIBUTE_VERIFY_H_
#define TESSERA_REDISTRIBUTE_VERIFY_H_

#include "absl/status/status.h"
#include "tessera/redistribute/plan.h"

namespace tessera {

// Proves that `plan` leads from its source to its target: OK if it does, else
// the first thing that is wrong. The proof rests on what layouts mean and on
// what the executor does in a step; it knows nothing of how plans are found.
//
// What a rank holds is one interval per tensor dim, a function of its mesh
// coordinates, and per Partial axis the op by which its value has still to be
// combined. The proof goes by induction: where every rank holds what `before`
// says, the step leaves it with what `after` says. These rules say so:
//
//   chain    The first step begins at the source, every other where the one in
//            front of it ends, the last ends at the target; all with one
//            tensor, on one mesh but where an exchange leads to another.
//   axes     A step names axes of the mesh, each once; one that communicates
//            names none of size 1. Along other axes placements stay, and so
//            does the order in which these cut each dim.
//   change   Along every axis that it names, a step makes the same change, one
//            that its kind is for (see StepKind). A relabelling may make any,
//            but leaves what is Partial along axes of size above 1.
//   regions  Where named axes come to shard a dim, or cease to, the pieces of
//            the dim are those into which the shard rule cuts the whole over
//            the named axes, one after the other in the order named: so do
//            communicators cut and join. A relabelling leaves all intervals.
//   ragged   Ragged cuts stay. Beside one no step moves elements.
//   figures  Bytes and messages are what Step says they are, for collectives
//            as Communicator issues them. Times are not checked.
//
// An exchange moves whatever `after` wants of what `before` has, so that of
// these rules it has its own:
//
//   axes     It names all axes along which elements may move (exchange.h), in
//            any order, which may be none.
//   change   Nothing is Partial before and after.
//   figures  Bytes and messages are at least what Step says they are, where
//            neither mesh has more than 4096 ranks; beyond that they are not
//            checked.
//
// Nothing else has to be checked for: layouts do not mix ops that do not
// commute, nor average integers.
//
// ERRORS: InvalidArgument, naming the step (the first is 1), coordinates,
// dim, what is wanted and what is found.
// COST: per step, for each dim that named axes shard before or after it, the
// product of the sizes of all axes that shard that dim before or after; beside
// a ragged cut that of its axes too. No work grows with other axes. For an
// exchange, as far as its figures are checked, per rank the number of ranks
// that it gets something from.
absl::Status Verify(const Plan& plan);

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_VERIFY_H_
