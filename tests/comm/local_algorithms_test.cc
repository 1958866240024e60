#include "tessera/comm/local/local_algorithms.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/comm/collective_cases.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::AllCollectiveCases;
using ::tessera::testing::CollectiveCase;
using ::tessera::testing::CollectiveRun;

// Parts may run in any order, and so at the same time: none touches what
// another writes. And one rank may run them all.
TEST(LocalAlgorithms, OrderOfPartsDoesNotMatter) {
  std::mt19937 random(1);
  std::vector<int> order = {0, 1, 2, 3};
  for (const CollectiveCase& c : AllCollectiveCases(/*ranks=*/4)) {
    for (bool alone : {false, true}) {
      const CollectiveRun run(c, /*seed=*/7);
      std::vector<Collective> calls;
      for (int rank : {0, 1, 2, 3}) calls.push_back(run.Call(rank));
      std::vector<const Collective*> pointers;
      for (const Collective& call : calls) pointers.push_back(&call);
      ASSERT_EQ(FindDisagreement(pointers, {0, 1, 2, 3}), "");
      if (alone) {
        RunAlone(pointers);
      } else {
        std::shuffle(order.begin(), order.end(), random);
        for (int rank : order) RunPart(pointers, rank);
      }
      for (int rank : order) ASSERT_EQ(run.Check(rank), "");
    }
  }
}

}  // namespace
}  // namespace tessera::internal
