#include "tessera/comm/mpi/call_codec.h"

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/calls.h"
#include "tests/comm/collective_cases.h"
#include "tests/status_matchers.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::AllCollectiveCases;
using ::tessera::testing::CollectiveCase;
using ::tessera::testing::CollectiveRun;
using ::tessera::testing::StatusIs;

std::string Difference(const std::vector<std::vector<Collective>>& launches) {
  std::vector<absl::Span<const Collective>> spans(launches.begin(),
                                                  launches.end());
  std::vector<const Collective*> calls;
  return FindDisagreement(spans, {0, 1, 2}, calls);
}

std::vector<Collective> Decoded(const std::vector<Collective>& calls) {
  DecodedCalls decoded;
  EXPECT_OK(decoded.Decode(EncodeCalls(calls, 3)));
  return {decoded.calls().begin(), decoded.calls().end()};
}

// Between any two neighbours of the list of all collectives, as ranks would
// compare them.
TEST(CallCodec, DecodedCallsDifferAsTheCallsDo) {
  const std::vector<CollectiveCase> cases = AllCollectiveCases(/*ranks=*/3);
  for (size_t i = 0; i + 1 < cases.size(); i += 7) {
    const CollectiveRun a(cases[i], 1);
    const CollectiveRun b(cases[i + 1], 1);
    for (const CollectiveRun* last : {&a, &b}) {
      const std::vector<std::vector<Collective>> launches = {
          {a.Call(0)}, {a.Call(1)}, {last->Call(2)}};
      const std::vector<std::vector<Collective>> decoded = {
          Decoded(launches[0]), Decoded(launches[1]), Decoded(launches[2])};
      const std::string difference = Difference(launches);
      EXPECT_EQ(Difference(decoded), difference);
      if (MayDiffer(launches[0]) || MayDiffer(launches[2])) continue;
      EXPECT_EQ(EncodeCalls(launches[0], 3) == EncodeCalls(launches[2], 3),
                difference.empty())
          << cases[i].ToString();
    }
  }
}

TEST(CallCodec, KeepsMessages) {
  std::vector<Transfer> sends = {
      {2, TensorView(nullptr, TensorMeta::Parse("bf16[3,4]").value())},
      {0, TensorView()}};
  Collective call;
  call.kind = CollectiveKind::kSendRecv;
  call.sends = sends;
  DecodedCalls decoded;
  ASSERT_OK(decoded.Decode(EncodeCalls({call, Collective()}, 3)));
  ASSERT_EQ(decoded.calls().size(), 2);
  ASSERT_EQ(decoded.calls()[0].sends.size(), 2);
  EXPECT_EQ(decoded.calls()[0].sends[0].peer, 2);
  EXPECT_EQ(decoded.calls()[0].sends[0].view.meta().ToString(), "bf16[3,4]");
  EXPECT_TRUE(decoded.calls()[0].recvs.empty());
  EXPECT_EQ(decoded.calls()[1].kind, CollectiveKind::kBarrier);
}

TEST(CallCodec, RejectsBytesThatAreCutShort) {
  const std::string bytes = EncodeCalls({Collective()}, 3);
  for (size_t size = 0; size < bytes.size(); ++size) {
    DecodedCalls decoded;
    EXPECT_THAT(decoded.Decode(bytes.substr(0, size)),
                StatusIs(absl::StatusCode::kInternal));
  }
}

}  // namespace
}  // namespace tessera::internal
