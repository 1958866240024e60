#include "tessera/comm/comm_set.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DeviceMesh Mesh(absl::string_view text) {
  return DeviceMesh::Parse(text).value();
}

// Checks that the communicator connects its members, in its order.
absl::Status CheckConnected(Communicator& communicator) {
  std::vector<int64_t> ranks(communicator.size(), -1);
  int64_t own = communicator.members()[communicator.rank()];
  TESSERA_RETURN_IF_ERROR(communicator.AllGather(
      TensorView::Flat(&own, DType::kI64, 1),
      TensorView::Flat(ranks.data(), DType::kI64, communicator.size())));
  TESSERA_RETURN_IF_ERROR(communicator.stream().Synchronize());
  EXPECT_EQ(ranks, std::vector<int64_t>(communicator.members().begin(),
                                        communicator.members().end()));
  return absl::OkStatus();
}

TEST(CommSet, GroupsFollowTheAxesInTheOrderGiven) {
  const DeviceMesh mesh = Mesh("pp=2,dp=2,tp=2");
  ASSERT_OK(RunLocalRanks(8, [&](LocalRank& rank) -> absl::Status {
    const auto get = [&](const std::vector<int>& axes) {
      return rank.comms.Get(mesh, axes, rank.stream);
    };
    TESSERA_ASSIGN_OR_RETURN(Communicator* const tp, get({2}));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const pp_tp, get({0, 2}));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const tp_pp, get({2, 0}));
    EXPECT_EQ(tp->name(), "tp");
    EXPECT_EQ(tp->rank(), rank.rank % 2);
    EXPECT_EQ(pp_tp->name(), "pp.tp");
    EXPECT_EQ(tp_pp->name(), "tp.pp");
    if (rank.rank == 6) {
      EXPECT_THAT(tp->members(), ElementsAre(6, 7));
      EXPECT_THAT(pp_tp->members(), ElementsAre(2, 3, 6, 7));
      EXPECT_THAT(tp_pp->members(), ElementsAre(2, 6, 3, 7));
    }
    for (Communicator* communicator : {tp, pp_tp, tp_pp}) {
      TESSERA_RETURN_IF_ERROR(CheckConnected(*communicator));
    }
    return absl::OkStatus();
  }));
}

TEST(CommSet, MakesOneCommunicatorPerGroupAndStream) {
  const DeviceMesh mesh = Mesh("dp=2,tp=2");
  ASSERT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    CommSet& comms = rank.comms;
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> other_stream,
                             rank.device.NewStream("other"));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const first,
                             comms.Get(mesh, {0}, rank.stream));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const again,
                             comms.Get(mesh, {0}, rank.stream));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const other,
                             comms.Get(mesh, {0}, *other_stream));
    EXPECT_EQ(first, again);
    EXPECT_NE(first, other);
    EXPECT_EQ(&other->stream(), other_stream.get());
    // Counters go by name, so axes that are called differently are different.
    TESSERA_ASSIGN_OR_RETURN(Communicator* const renamed,
                             comms.Get(Mesh("data=2,tp=2"), {0}, rank.stream));
    EXPECT_NE(first, renamed);
    EXPECT_EQ(&comms.log(), renamed->log().get());
    TESSERA_RETURN_IF_ERROR(CheckConnected(*first));
    TESSERA_RETURN_IF_ERROR(CheckConnected(*other));
    return CheckConnected(*renamed);
  }));
}

// Whatever there is to make them from, and whatever there is already.
TEST(CommSet, GroupsMadeTogetherAreThoseThatGetGives) {
  struct Case {
    const char* mesh;
    bool is_spanned;  // by a communicator
    bool has_rows;    // ranks 0 to 3 have theirs
  };
  for (const Case& c :
       {Case{"dp=2,tp=4", false, false}, Case{"dp=2,tp=4", false, true},
        Case{"dp=2:3,tp=3:1", false, false},
        Case{"dp=3:1,tp=2:4@1", true, false}}) {
    SCOPED_TRACE(c.mesh);
    ASSERT_OK(RunLocalRanks(8, [&](LocalRank& rank) -> absl::Status {
      CommSet& comms = rank.comms;
      const DeviceMesh mesh = Mesh(c.mesh);
      if (!mesh.Contains(rank.rank)) {
        EXPECT_THAT(comms.GetTogether(mesh, {0}, rank.stream),
                    StatusIs(absl::StatusCode::kInvalidArgument));
        return absl::OkStatus();
      }
      TESSERA_ASSIGN_OR_RETURN(const auto other, rank.device.NewStream("b"));
      if (c.is_spanned) {
        TESSERA_RETURN_IF_ERROR(comms.Get(mesh, {0, 1}, *other).status());
      }
      if (c.has_rows && rank.rank < 4) {
        TESSERA_RETURN_IF_ERROR(comms.Get(mesh, {1}, rank.stream).status());
      }
      for (const std::vector<int>& axes :
           std::vector<std::vector<int>>{{0}, {1}, {1, 0}}) {
        TESSERA_ASSIGN_OR_RETURN(Communicator* const made,
                                 comms.GetTogether(mesh, axes, rank.stream));
        TESSERA_ASSIGN_OR_RETURN(Communicator* const got,
                                 comms.Get(mesh, axes, rank.stream));
        EXPECT_EQ(made, got);
        TESSERA_ASSIGN_OR_RETURN(Communicator* const further,
                                 comms.GetTogether(mesh, axes, *other));
        TESSERA_ASSIGN_OR_RETURN(const DeviceMesh slice,
                                 mesh.Slice(axes, rank.rank));
        EXPECT_EQ(made->size(), slice.size());
        TESSERA_RETURN_IF_ERROR(CheckConnected(*made));
        TESSERA_RETURN_IF_ERROR(CheckConnected(*further));
      }
      return absl::OkStatus();
    }));
  }
}

TEST(CommSet, UnionsHoldTheRanksOfBothMeshesAscending) {
  const DeviceMesh columns = Mesh("x=2:1,y=2:2");
  const DeviceMesh behind = Mesh("z=2:3@3");
  ASSERT_OK(RunLocalRanks(8, [&](LocalRank& rank) -> absl::Status {
    const auto get = [&](const DeviceMesh& a, const DeviceMesh& b) {
      return rank.comms.GetUnion({a, b}, rank.stream);
    };
    if (!columns.Contains(rank.rank) && !behind.Contains(rank.rank)) {
      EXPECT_THAT(get(columns, behind),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("this rank is not a member")));
      return absl::OkStatus();
    }
    TESSERA_ASSIGN_OR_RETURN(Communicator* const both, get(columns, behind));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const again, get(columns, behind));
    EXPECT_EQ(both, again);
    EXPECT_EQ(both->name(), "x=2:1,y=2:2+z=2:3@3");
    EXPECT_THAT(both->members(), ElementsAre(0, 1, 2, 3, 6));
    return CheckConnected(*both);
  }));
}

TEST(CommSet, RanksAgreeOnceForEachFingerprint) {
  ASSERT_OK(RunLocalRanks(3, [&](LocalRank& rank) -> absl::Status {
    Communicator& world = rank.comms.world();
    const auto agree = [&](uint64_t fingerprint) {
      return rank.comms.Agree(world, fingerprint, [=] {
        return absl::StrCat("plan ", fingerprint);
      });
    };
    TESSERA_RETURN_IF_ERROR(agree(7));
    // Nobody is asked again: rank 0 comes alone.
    if (rank.rank == 0) TESSERA_RETURN_IF_ERROR(agree(7));
    // What they disagree on is not taken for agreed.
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(agree(rank.rank == 1 ? 8 : 9),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("rank 1: plan 8"),
                                 HasSubstr("ranks 0,2: plan 9"))));
    }
    return agree(8);
  }));
}

TEST(CommSet, AxesOfOneRankNeedNobody) {
  ASSERT_OK(RunLocalRanks(2, [&](LocalRank& rank) -> absl::Status {
    if (rank.rank == 1) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(
        Communicator* const one,
        rank.comms.Get(Mesh("cp=1,dp=2"), {0}, rank.stream));
    EXPECT_THAT(one->members(), ElementsAre(0));
    TESSERA_RETURN_IF_ERROR(CheckConnected(*one));
    EXPECT_THAT(rank.comms.log().counters(), IsEmpty());
    return absl::OkStatus();
  }));
}

// Ranks outside a mesh are not waited for, neither when its groups are made
// nor when everything goes.
TEST(CommSet, MeshOfSomeRanksThenMeshOfAll) {
  for (CpuStreams streams : {CpuStreams::kInline, CpuStreams::kWorker}) {
    LocalRunOptions options;
    options.device.streams = streams;
    ASSERT_OK(RunLocalRanks(
        8,
        [](LocalRank& rank) -> absl::Status {
          const DeviceMesh five = Mesh("dp=5");
          if (five.Contains(rank.rank)) {
            TESSERA_ASSIGN_OR_RETURN(Communicator* const dp,
                                     rank.comms.Get(five, {0}, rank.stream));
            TESSERA_RETURN_IF_ERROR(CheckConnected(*dp));
          } else {
            EXPECT_THAT(rank.comms.Get(five, {0}, rank.stream),
                        StatusIs(absl::StatusCode::kInvalidArgument));
          }
          const DeviceMesh all = Mesh("dp=2,tp=4");
          for (const std::vector<int>& axes :
               std::vector<std::vector<int>>{{0}, {1}, {0, 1}}) {
            TESSERA_ASSIGN_OR_RETURN(Communicator* const group,
                                     rank.comms.Get(all, axes, rank.stream));
            TESSERA_RETURN_IF_ERROR(CheckConnected(*group));
          }
          return absl::OkStatus();
        },
        options));
  }
}

TEST(CommSet, ServesLentCommunicatorsAndSplitsFurtherStreamsFromThem) {
  const DeviceMesh mesh = Mesh("dp=2,tp=2");
  ASSERT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    CommSet& comms = rank.comms;
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> other_stream,
                             rank.device.NewStream("other"));
    TESSERA_ASSIGN_OR_RETURN(
        const std::unique_ptr<Communicator> mine,
        comms.world().Split(rank.rank / 2, rank.rank, "mine", rank.stream));
    EXPECT_OK(comms.Lend(mesh, {1}, *mine));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const tp,
                             comms.Get(mesh, {1}, rank.stream));
    EXPECT_EQ(tp, mine.get());
    TESSERA_ASSIGN_OR_RETURN(Communicator* const further,
                             comms.Get(mesh, {1}, *other_stream));
    EXPECT_EQ(further->members(), mine->members());
    TESSERA_RETURN_IF_ERROR(CheckConnected(*further));

    EXPECT_THAT(
        comms.Lend(mesh, {1}, *mine),
        StatusIs(
            absl::StatusCode::kAlreadyExists,
            HasSubstr("there is a communicator for axes 'tp' of mesh "
                      "dp=2,tp=2 on rank " +
                      std::to_string(rank.rank) + " on stream 'compute'")));
    if (rank.rank == 3) {
      EXPECT_THAT(comms.Lend(mesh, {0}, *mine),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           "comm: the communicator lent for axes 'dp' of mesh "
                           "dp=2,tp=2 on rank 3 has the ranks (2,3), want "
                           "(1,3)"));
    }
    return absl::OkStatus();
  }));
}

TEST(CommSet, RejectsMeshesAndAxesThatDoNotFit) {
  ASSERT_OK(RunLocalRanks(2, [](LocalRank& rank) -> absl::Status {
    EXPECT_THAT(rank.comms.Get(Mesh("dp=2"), {1}, rank.stream),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(rank.comms.Get(Mesh("dp=4"), {0}, rank.stream),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("member 2 is not in a group of 2")));
    EXPECT_THAT(rank.comms.Get(Mesh("dp=2@7"), {0}, rank.stream),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(rank.comms.GetTogether(Mesh("dp=2:1,tp=2:4"), {1}, rank.stream),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is not in a group of 2")));
    return absl::OkStatus();
  }));
}

// What one group has agreed on, another has not.
TEST(CommSet, EveryGroupAgreesForItself) {
  ASSERT_OK(RunLocalRanks(4, [](LocalRank& rank) -> absl::Status {
    const DeviceMesh mesh = Mesh("dp=2,tp=2");
    TESSERA_ASSIGN_OR_RETURN(Communicator* const dp,
                             rank.comms.Get(mesh, {0}, rank.stream));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const tp,
                             rank.comms.Get(mesh, {1}, rank.stream));
    // Along tp, ranks give other ones.
    const uint64_t fingerprint = rank.rank % 2 == 0 ? 8 : 7;
    const auto describe = [&] { return absl::StrCat("plan ", fingerprint); };
    TESSERA_RETURN_IF_ERROR(rank.comms.Agree(*dp, fingerprint, describe));
    EXPECT_THAT(rank.comms.Agree(*tp, fingerprint, describe),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    return absl::OkStatus();
  }));
}

// Meshes number the ranks of the set's world, which may be a part of all, and
// in another order.
TEST(CommSet, ServesLentCommunicatorsOfAnyWorld) {
  ASSERT_OK(RunLocalRanks(4, [](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> half,
                             rank.comms.world().Split(rank.rank / 2, -rank.rank,
                                                      "half", rank.stream));
    CommSet comms(*half);
    const DeviceMesh mesh = Mesh("dp=2");
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> reversed,
                             half->Subgroup({1, 0}, "reversed", rank.stream));
    EXPECT_THAT(comms.Lend(mesh, {0}, *reversed),
                StatusIs(absl::StatusCode::kInvalidArgument));
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> same,
                             half->Subgroup({0, 1}, "same", rank.stream));
    EXPECT_OK(comms.Lend(mesh, {0}, *same));
    TESSERA_ASSIGN_OR_RETURN(Communicator* const dp,
                             comms.Get(mesh, {0}, rank.stream));
    EXPECT_EQ(dp, same.get());
    EXPECT_EQ(dp->rank(), half->rank());
    EXPECT_THAT(comms.Lend(Mesh("dp=4"), {0}, *same),
                StatusIs(absl::StatusCode::kInvalidArgument));
    return CheckConnected(*dp);
  }));
}

}  // namespace
}  // namespace tessera
