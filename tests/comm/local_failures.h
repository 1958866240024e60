#ifndef TESSERA_TESTS_COMM_LOCAL_FAILURES_H_
#define TESSERA_TESTS_COMM_LOCAL_FAILURES_H_

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera::testing {

// How long tests wait for what must not take a timeout to happen.
inline constexpr std::chrono::milliseconds kLong = std::chrono::seconds(100);

// Ranks on threads, with streams of either kind.
class LocalFailures : public ::testing::TestWithParam<CpuStreams> {
 protected:
  LocalRunOptions options(std::chrono::milliseconds timeout = kLong) const {
    LocalRunOptions options;
    options.device.streams = GetParam();
    options.world.timeout = timeout;
    return options;
  }

  // What each rank gets from the call that `issue` makes, once its stream has
  // come past.
  using Issue = std::function<absl::Status(LocalRank&)>;
  std::vector<absl::Status> Results(
      int ranks, const Issue& issue,
      std::chrono::milliseconds timeout = kLong) const {
    std::vector<absl::Status> results(ranks);
    EXPECT_OK(RunLocalRanks(
        ranks,
        [&](LocalRank& rank) {
          const std::unique_ptr<Stream> stream =
              rank.device.NewStream("tested").value();
          const std::unique_ptr<Communicator> group =
              rank.comms.world().Split(0, rank.rank, "dp", *stream).value();
          CommSet comms(*group);
          LocalRank tested = {rank.rank, ranks, rank.device, *stream, comms};
          results[rank.rank] = issue(tested);
          results[rank.rank].Update(stream->Synchronize());
          return absl::OkStatus();
        },
        options(timeout)));
    return results;
  }
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_COMM_LOCAL_FAILURES_H_
