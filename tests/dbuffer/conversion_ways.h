#ifndef TESSERA_TESTS_DBUFFER_CONVERSION_WAYS_H_
#define TESSERA_TESTS_DBUFFER_CONVERSION_WAYS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/dbuffer/dbuffer.h"
#include "tests/dbuffer/hsdp_buffers.h"
#include "tests/scheduled_runner.h"
#include "tests/status_matchers.h"

namespace tessera::testing {

// Where a buffer goes on its way over three streams.
struct Way {
  absl::string_view reduced;
  absl::string_view final;
  absl::string_view copied;
};

// Like a gradient: written on the compute stream, reduced on a second one,
// finished and copied on a third one, which gives its memory back. Two rounds
// overlap. `Rank` is a LocalRank or the like; what it ends with is `result`.
template <typename Rank>
absl::Status TakeOn(const Way& way, const GroupPtr& group, Rank& rank,
                    std::vector<float>& result) {
  TESSERA_ASSIGN_OR_RETURN(const auto reduce, rank.device.NewStream("reduce"));
  TESSERA_ASSIGN_OR_RETURN(const auto finish, rank.device.NewStream("finish"));
  Kernels& kernels = rank.device.kernels();
  const auto allocate = [&](absl::string_view placements) {
    return DBuffer::Allocate(group, Parse(placements), DType::kF32, rank.rank,
                             rank.device, "buffer", rank.stream);
  };
  TESSERA_ASSIGN_OR_RETURN(DBuffer copy, allocate(way.copied));
  result.assign(2 * copy.local().num_elements(), 0);
  for (int round = 0; round < 2; ++round) {
    TESSERA_ASSIGN_OR_RETURN(DBuffer buffer, allocate("[P, P]"));
    for (int i = 0; i < group->num_tensors(); ++i) {
      TESSERA_RETURN_IF_ERROR(kernels.Fill(rank.stream, buffer.WholeTensor(i),
                                           1.0 / (3 + rank.rank + round)));
    }
    TESSERA_RETURN_IF_ERROR(reduce->Wait(rank.stream.Record()));
    TESSERA_RETURN_IF_ERROR(
        buffer.ConvertTo(Parse(way.reduced), rank.comms, *reduce));
    TESSERA_RETURN_IF_ERROR(finish->Wait(reduce->Record()));
    TESSERA_RETURN_IF_ERROR(
        buffer.ConvertTo(Parse(way.final), rank.comms, *finish));
    TESSERA_RETURN_IF_ERROR(buffer.CopyTo(copy, rank.comms, *finish));
    buffer.Release(*finish);
    const TensorView piece = copy.local();
    TESSERA_RETURN_IF_ERROR(kernels.CopyToHost(
        *finish, &result[round * piece.num_elements()], piece));
  }
  TESSERA_RETURN_IF_ERROR(finish->Synchronize());
  return rank.stream.Synchronize();
}

// Ways of all kinds end with the same bits on threads and under `run`, whatever
// the order of streams.
inline void ExpectTheSameBitsInAnyOrder(const ScheduledRunner& run,
                                        uint64_t num_seeds) {
  const GroupPtr group = HsdpGroup();
  for (const Way& way : {Way{"[P, Flat]", "[R, Flat]", "[R, R]"},
                         Way{"[P, Flat]", "[Flat, Flat]", "[R, Flat]"},
                         Way{"[Flat, Flat]", "[P, Flat]", "[R, R]"},
                         Way{"[P, P]", "[R, R]", "[Flat, Flat]"},
                         Way{"[P, P]", "[P, P]", "[Flat, Flat]"}}) {
    SCOPED_TRACE(way.reduced);
    std::vector<std::vector<float>> expected(4);
    ASSERT_OK(RunLocalRanks(4, [&](LocalRank& rank) {
      return TakeOn(way, group, rank, expected[rank.rank]);
    }));
    for (uint64_t seed = 0; seed < num_seeds; ++seed) {
      std::vector<std::vector<float>> results(4);
      const auto program = [&](ScheduledRank& rank) {
        return TakeOn(way, group, rank, results[rank.rank]);
      };
      ASSERT_OK(run(4, program, {.seed = seed}, /*report=*/nullptr));
      EXPECT_EQ(results, expected);
    }
  }
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_DBUFFER_CONVERSION_WAYS_H_
