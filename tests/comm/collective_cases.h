#ifndef TESSERA_TESTS_COMM_COLLECTIVE_CASES_H_
#define TESSERA_TESTS_COMM_COLLECTIVE_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/communicator.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"

// Collectives with data and the right answer, for any backend.

namespace tessera::testing {

// Where send and recv lie.
enum class Place { kDense, kStrided, kInPlace, kStridedInPlace };
inline constexpr Place kAllPlaces[] = {Place::kDense, Place::kStrided,
                                       Place::kInPlace, Place::kStridedInPlace};

// One collective of `ranks` ranks on a tensor that has the shape `extents`
// where it is whole.
//
// all_to_all turns the cut along `recv_dim` into one along `dim`: rank i has
// piece i of the tensor along recv_dim before and along dim afterwards.
struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int ranks = 1;
  std::vector<int64_t> extents;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int dim = 0;
  ExtentSplit split;
  int recv_dim = 0;
  ExtentSplit recv_split;
  int root = 0;
  Place place = Place::kDense;

  std::string ToString() const;
};

// How a backend averages: divides the sum before it rounds it to the dtype, or
// scales the sum, which is of the dtype, by a factor.
enum class Averaging { kInOne, kAfterwards };

// A CollectiveCase with memory: different data on every rank, poison in recv
// and in all gaps.
class CollectiveRun {
 public:
  CollectiveRun(const CollectiveCase& c, uint64_t seed,
                Averaging averaging = Averaging::kInOne);

  // The memory of one rank, as numbers.
  TensorView Memory(int rank);

  // The call of one rank, on its memory, or on a copy of that, at `memory`.
  Collective Call(int rank) const;
  Collective Call(int rank, char* memory) const;

  // What is wrong with the memory of `rank` after the call, or "". Every byte
  // that is not an element of recv must be what it was.
  std::string Check(int rank) const;

 private:
  struct RankMemory {
    std::vector<char> bytes;    // send and recv with their gaps
    std::vector<char> initial;  // the same before the call
    TensorView send;
    TensorView recv;
    std::string sent;  // send's elements, packed, before the call
  };

  void LayOut(RankMemory& memory, const TensorMeta& send,
              const TensorMeta& recv, int rank);
  // What all ranks together must end with, packed; and this rank's part of it.
  std::string WholeResult() const;
  std::string Expected(int rank) const;

  CollectiveCase case_;
  Averaging averaging_;
  std::vector<RankMemory> ranks_;
  std::string whole_result_;
};

// Element by element, in row-major order.
std::string Pack(const TensorView& view);
void Unpack(const std::string& packed, const TensorView& view);

// `values` of one element combined in this order, each packed.
std::string Combine(ReduceOp op, DType dtype,
                    const std::vector<std::string>& packed);

// Values whose sums depend on the order of the terms; after some ten thousand
// they repeat.
std::string RandomElements(DType dtype, int64_t count, uint64_t seed);

// Every kind x dtype x op x place on small shapes, even and uneven splits,
// the first and an inner dim; and a few large ones.
std::vector<CollectiveCase> AllCollectiveCases(int ranks);

// Every kind once on 2^20 elements; sums in two dtypes.
std::vector<CollectiveCase> LargeCollectiveCases(int ranks);

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_COMM_COLLECTIVE_CASES_H_
