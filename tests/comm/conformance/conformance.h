#ifndef TESSERA_TESTS_COMM_CONFORMANCE_CONFORMANCE_H_
#define TESSERA_TESTS_COMM_CONFORMANCE_CONFORMANCE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/device.h"
#include "tessera/device/stream.h"
#include "tests/comm/collective_cases.h"

// What every backend of collectives must do, whose ranks may be threads or
// processes. A backend joins with one line in a file of its own:
//
//   INSTANTIATE_TEST_SUITE_P(Nccl, CommConformance, Values(...), WorldName);

namespace tessera::testing {

// What the program of one rank gets to work with.
struct ConformanceRank {
  int rank;
  int num_ranks;
  Device& device;
  Stream& stream;  // `comms.world()` is on it
  CommSet& comms;
};
using ConformanceProgram = absl::FunctionRef<absl::Status(ConformanceRank&)>;

// A backend in a world of some size.
struct ConformanceWorld {
  std::string name;  // "4RanksInline"
  int ranks = 1;
  // Runs the program once for each rank of this process and returns OK, or an
  // error that one of them returned.
  std::function<absl::Status(ConformanceProgram)> run;
  // Of the list of all collectives every n-th is run.
  int every = 1;
  Averaging averaging = Averaging::kInOne;
  // Whether ranks that disagree are told so, rather than wait in vain.
  bool compares_calls = true;
};

inline std::string WorldName(
    const ::testing::TestParamInfo<ConformanceWorld>& world) {
  return world.param.name;
}

// `Rank` is what the backend's own way to run ranks gives to programs.
template <typename Rank>
absl::Status RunConformance(ConformanceProgram program, Rank& rank) {
  ConformanceRank conformance = {rank.rank, rank.num_ranks, rank.device,
                                 rank.stream, rank.comms};
  return program(conformance);
}

class CommConformance : public ::testing::TestWithParam<ConformanceWorld> {
 protected:
  int ranks() const { return GetParam().ranks; }
  absl::Status Run(ConformanceProgram program) const {
    return GetParam().run(program);
  }
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_COMM_CONFORMANCE_CONFORMANCE_H_
