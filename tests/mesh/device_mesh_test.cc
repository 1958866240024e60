#include "tessera/mesh/device_mesh.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hostile_text.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::HostileTexts;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr int kMaxInt = std::numeric_limits<int>::max();

DeviceMesh Mesh(absl::string_view text) {
  return DeviceMesh::Parse(text).value();
}

auto IsInvalid(const std::string& part) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part));
}

// All coordinates, row-major, and the ranks there by the affine definition.
std::map<std::vector<int>, int> RanksByCoords(const DeviceMesh& mesh) {
  std::map<std::vector<int>, int> ranks = {{{}, mesh.offset()}};
  for (const MeshAxis& axis : mesh.axes()) {
    std::map<std::vector<int>, int> longer;
    for (const auto& [coords, rank] : ranks) {
      for (int i = 0; i < axis.size; ++i) {
        std::vector<int> extended = coords;
        extended.push_back(i);
        longer[extended] = rank + i * axis.stride;
      }
    }
    ranks = std::move(longer);
  }
  return ranks;
}

std::vector<int> Ranks(const DeviceMesh& mesh) {
  std::vector<int> ranks;
  for (const auto& [coords, rank] : RanksByCoords(mesh)) ranks.push_back(rank);
  return ranks;
}

// RankAt, CoordsOf, size and end_rank against the affine definition.
void CheckMap(const DeviceMesh& mesh) {
  SCOPED_TRACE(mesh.ToString());
  const std::map<std::vector<int>, int> wanted = RanksByCoords(mesh);
  std::set<int> ranks;
  for (const auto& [coords, rank] : wanted) {
    EXPECT_EQ(mesh.RankAt(coords), rank);
    EXPECT_THAT(mesh.CoordsOf(rank),
                Optional(::testing::ElementsAreArray(coords)));
    ranks.insert(rank);
  }
  EXPECT_EQ(static_cast<int>(ranks.size()), mesh.size());
  EXPECT_EQ(*ranks.rbegin() + 1, mesh.end_rank());
  for (int rank = -2; rank < mesh.end_rank() + 3; ++rank) {
    EXPECT_EQ(mesh.Contains(rank), ranks.count(rank) == 1) << rank;
  }
}

const char* const kMeshes[] = {
    "",
    "@3",
    "a=1",
    "dp=4",
    "dp=2,tp=4",
    "dp=2,tp=4@8",
    "a=1,b=1,c=1,d=1",
    "a=2,b=1,c=3",
    "tp=4@4",
    "dp=2:4@2",
    "a=2:1,b=3:2",
    "a=3:10,b=2:3,c=3:1@7",
    "a=2:100,b=1,c=2:7",
};

TEST(DeviceMeshTest, IsAnAffineMap) {
  for (const char* text : kMeshes) CheckMap(Mesh(text));
}

TEST(DeviceMeshTest, DefaultsToOneRankWithoutAxes) {
  EXPECT_EQ(DeviceMesh().num_axes(), 0);
  EXPECT_EQ(DeviceMesh().size(), 1);
  EXPECT_EQ(DeviceMesh().end_rank(), 1);
  EXPECT_EQ(DeviceMesh().RankAt({}), 0);
  EXPECT_EQ(DeviceMesh(), Mesh(""));
}

TEST(DeviceMeshTest, CreateIsRowMajor) {
  ASSERT_OK_AND_ASSIGN(
      const DeviceMesh mesh,
      DeviceMesh::Create({{"pp", 2}, {"dp", 3}, {"tp", 4}}, 10));
  EXPECT_THAT(mesh.axes(),
              ElementsAre(MeshAxis{"pp", 2, 12}, MeshAxis{"dp", 3, 4},
                          MeshAxis{"tp", 4, 1}));
  EXPECT_EQ(mesh.RankAt({1, 2, 3}), 10 + 23);
  EXPECT_EQ(mesh.ToString(), "pp=2,dp=3,tp=4@10");
}

TEST(DeviceMeshTest, RejectsBadAxes) {
  EXPECT_THAT(DeviceMesh::Create({{"dp", 2}, {"tp", 0}}),
              IsInvalid("mesh: axis 'tp' has size 0, want at least 1"));
  EXPECT_THAT(DeviceMesh::Create({{"dp", -2}}), IsInvalid("-2"));
  EXPECT_THAT(DeviceMesh::Create({{"dp", 2}, {"dp", 2}}),
              IsInvalid("'dp' repeats"));
  for (const char* name : {"", "2d", "a b", "a-b", "\xc3\xa4"}) {
    EXPECT_THAT(DeviceMesh::Create({{name, 2}}), IsInvalid("axis name"));
  }
  EXPECT_THAT(DeviceMesh::Create({{"dp", 2}}, -1), IsInvalid("offset"));
}

TEST(DeviceMeshTest, RejectsStridesThatCouldMeet) {
  const auto create = [](int size_a, int stride_a, int size_b, int stride_b) {
    return DeviceMesh::CreateAffine(
        {{"a", size_a, stride_a}, {"b", size_b, stride_b}}, 0);
  };
  EXPECT_OK(create(2, 4, 4, 1));
  EXPECT_OK(create(4, 1, 2, 4));
  EXPECT_THAT(create(2, 3, 4, 1), IsInvalid("axis 'a' has stride 3"));
  EXPECT_THAT(create(2, 4, 3, 4), IsInvalid("has stride 4"));
  EXPECT_THAT(create(2, 0, 1, 1), IsInvalid("axis 'a' has stride 0"));
  EXPECT_THAT(create(2, -1, 1, 1), IsInvalid("axis 'a' has stride -1"));
  // Of size 1, an axis goes nowhere whatever its stride.
  EXPECT_OK(create(1, 1, 4, 1));
  EXPECT_OK(create(1, 0, 4, 1));
}

TEST(DeviceMeshTest, StridesOfSizeOneAxesDoNotCountInEquality) {
  ASSERT_OK_AND_ASSIGN(
      const DeviceMesh mesh,
      DeviceMesh::CreateAffine({{"a", 1, 17}, {"b", 4, 1}}, 0));
  EXPECT_EQ(mesh, Mesh("a=1,b=4"));
  EXPECT_EQ(mesh.axis(0).stride, 1);
}

TEST(DeviceMeshTest, HoldsRanksUpToTheLimitWithoutMemory) {
  ASSERT_OK_AND_ASSIGN(const DeviceMesh largest,
                       DeviceMesh::Create({{"world", kMaxInt}}));
  EXPECT_EQ(largest.size(), kMaxInt);
  EXPECT_EQ(largest.end_rank(), kMaxInt);
  EXPECT_THAT(largest.CoordsOf(kMaxInt - 1),
              Optional(ElementsAre(kMaxInt - 1)));
  EXPECT_FALSE(largest.Contains(kMaxInt));

  const DeviceMesh cluster = Mesh("dp=2048,pp=8,tp=8");
  EXPECT_EQ(cluster.size(), 131072);
  EXPECT_THAT(cluster.CoordsOf(131071), Optional(ElementsAre(2047, 7, 7)));
  EXPECT_THAT(cluster.Slice({"dp"}, 77), IsOkAndHolds(Mesh("dp=2048:64@13")));
  EXPECT_THAT(cluster.Flatten({"dp", "pp", "tp"}, "world"),
              IsOkAndHolds(Mesh("world=131072")));
}

TEST(DeviceMeshTest, RejectsRanksBeyondTheLimit) {
  EXPECT_THAT(DeviceMesh::Create({{"a", kMaxInt}, {"b", 2}}),
              IsInvalid("2147483647"));
  EXPECT_THAT(DeviceMesh::Create({{"a", kMaxInt}}, 1), IsInvalid("2147483647"));
  EXPECT_THAT(DeviceMesh::Create({}, kMaxInt), IsInvalid("2147483647"));
  EXPECT_OK(DeviceMesh::Create({}, kMaxInt - 1));
  EXPECT_THAT(DeviceMesh::CreateAffine({{"a", 3, kMaxInt}}, 0),
              IsInvalid("2147483647"));
  const std::vector<DeviceMesh::AxisSize> huge = {
      {"a", kMaxInt}, {"b", kMaxInt}, {"c", kMaxInt}, {"d", kMaxInt}};
  EXPECT_THAT(DeviceMesh::Create(huge), IsInvalid("2147483647"));
}

TEST(DeviceMeshTest, FindsAxesByName) {
  const DeviceMesh mesh = Mesh("pp=2,dp=3,tp=4");
  EXPECT_THAT(mesh.FindAxis("dp"), IsOkAndHolds(1));
  EXPECT_THAT(mesh.FindAxis("ep"),
              IsInvalid("mesh: no axis 'ep' in mesh 'pp=2,dp=3,tp=4'"));
  EXPECT_THAT(mesh.FindAxes({"tp", "pp"}), IsOkAndHolds(ElementsAre(2, 0)));
  EXPECT_THAT(mesh.FindAxes({}), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(mesh.FindAxes({"tp", "tp"}), IsInvalid("'tp' repeats"));
  EXPECT_THAT(mesh.FindAxes({"tp", "x"}), IsInvalid("'x'"));
}

TEST(DeviceMeshTest, RequireCoordsNamesRankAndMesh) {
  EXPECT_THAT(Mesh("dp=2:4@2").RequireCoordsOf(6),
              IsOkAndHolds(ElementsAre(1)));
  EXPECT_THAT(Mesh("dp=2:4@2").RequireCoordsOf(3),
              IsInvalid("mesh: rank 3 lies outside mesh 'dp=2:4@2'"));
}

TEST(DeviceMeshTest, SlicesHoldTheOtherCoordinatesFixed) {
  const DeviceMesh mesh = Mesh("dp=2,tp=4");
  EXPECT_THAT(mesh.Slice({"tp"}, 6), IsOkAndHolds(Mesh("tp=4@4")));
  EXPECT_THAT(mesh.Slice({"dp"}, 6), IsOkAndHolds(Mesh("dp=2:4@2")));
  EXPECT_THAT(mesh.Slice({"dp", "tp"}, 6), IsOkAndHolds(mesh));
  EXPECT_THAT(mesh.Slice({"tp", "dp"}, 6), IsOkAndHolds(Mesh("tp=4:1,dp=2:4")));
  EXPECT_THAT(mesh.Slice({0}, 6), IsOkAndHolds(Mesh("dp=2:4@2")));
  EXPECT_THAT(mesh.Slice({0, 1}, 6), IsOkAndHolds(mesh));
  EXPECT_THAT(mesh.Slice({}, 6), IsOkAndHolds(Mesh("@6")));
}

// The slice through `rank` has, at every coordinate, the rank that the mesh
// has there with the other coordinates of `rank`.
TEST(DeviceMeshTest, SlicesAgreeWithTheMeshTheyAreCutFrom) {
  for (const char* text : kMeshes) {
    const DeviceMesh mesh = Mesh(text);
    for (int rank : Ranks(mesh)) {
      for (int a = 0; a < mesh.num_axes(); ++a) {
        for (int b = 0; b < mesh.num_axes(); ++b) {
          if (a == b) continue;
          ASSERT_OK_AND_ASSIGN(const DeviceMesh slice,
                               mesh.Slice({a, b}, rank));
          for (const auto& [coords, sliced_rank] : RanksByCoords(slice)) {
            MeshCoords whole = *mesh.CoordsOf(rank);
            whole[a] = coords[0];
            whole[b] = coords[1];
            EXPECT_EQ(sliced_rank, mesh.RankAt(whole)) << slice;
          }
        }
      }
    }
  }
}

TEST(DeviceMeshTest, SliceRejectsBadAxesAndRanksOutside) {
  const DeviceMesh mesh = Mesh("dp=2,tp=4");
  EXPECT_THAT(mesh.Slice({"tp"}, 8), IsInvalid("rank 8"));
  EXPECT_THAT(mesh.Slice({"tp"}, -1), IsInvalid("rank -1"));
  EXPECT_THAT(mesh.Slice({"tp", "tp"}, 0), IsInvalid("'tp' repeats"));
  EXPECT_THAT(mesh.Slice({"ep"}, 0), IsInvalid("'ep'"));
  EXPECT_THAT(mesh.Slice({2}, 0), IsInvalid("axis 2"));
  EXPECT_THAT(mesh.Slice({-1}, 0), IsInvalid("axis -1"));
  EXPECT_THAT(mesh.Slice({1, 1}, 0), IsInvalid("repeats"));
}

TEST(DeviceMeshTest, FlattenMergesAxesThatNest) {
  const DeviceMesh mesh = Mesh("pp=2,dp=3,tp=4");
  EXPECT_THAT(mesh.Flatten({"dp", "tp"}, "fsdp"),
              IsOkAndHolds(Mesh("pp=2,fsdp=12")));
  EXPECT_THAT(mesh.Flatten({"pp", "dp"}, "x"),
              IsOkAndHolds(Mesh("x=6:4,tp=4:1")));
  EXPECT_THAT(mesh.Flatten({"dp"}, "dp"), IsOkAndHolds(mesh));
  EXPECT_THAT(mesh.Flatten({"dp"}, "fsdp"),
              IsOkAndHolds(Mesh("pp=2,fsdp=3,tp=4")));
  EXPECT_EQ(Ranks(*mesh.Flatten({"pp", "dp", "tp"}, "tp")), Ranks(mesh));
}

TEST(DeviceMeshTest, FlattenFollowsTheOrderOfTheNames) {
  // "b" is the slow axis of this mesh although it stands last.
  const DeviceMesh mesh = Mesh("a=2:1,x=2:6,b=3:2");
  EXPECT_THAT(mesh.Flatten({"b", "a"}, "ba"), IsOkAndHolds(Mesh("x=2,ba=6")));
  EXPECT_THAT(mesh.Flatten({"a", "b"}, "ab"),
              IsInvalid("axis 'a' has stride 1"));
}

TEST(DeviceMeshTest, FlattenRejectsAxesThatDoNotNest) {
  const DeviceMesh mesh = Mesh("pp=2,dp=3,tp=4");
  EXPECT_THAT(mesh.Flatten({"pp", "tp"}, "x"),
              IsInvalid("axis 'pp' has stride 12, want 4 to flatten"));
  EXPECT_THAT(mesh.Flatten({"tp", "dp"}, "x"), IsInvalid("has stride 1"));
  EXPECT_THAT(mesh.Flatten({"dp", "tp"}, "pp"), IsInvalid("'pp' repeats"));
  EXPECT_THAT(mesh.Flatten({"dp", "tp"}, ""), IsInvalid("axis name"));
  EXPECT_THAT(mesh.Flatten({"dp", "dp"}, "x"), IsInvalid("repeats"));
  EXPECT_THAT(mesh.Flatten({"ep"}, "x"), IsInvalid("'ep'"));
  EXPECT_THAT(mesh.Flatten({}, "x"), IsInvalid("at least one axis"));
}

TEST(DeviceMeshTest, AxesOfSizeOneFlattenAndSlice) {
  const DeviceMesh ones = Mesh("a=1,b=1,c=1,d=1");
  EXPECT_THAT(ones.Flatten({"b", "d"}, "bd"),
              IsOkAndHolds(Mesh("a=1,bd=1,c=1")));
  EXPECT_THAT(ones.Slice({"c", "a"}, 0), IsOkAndHolds(Mesh("c=1,a=1")));
  EXPECT_EQ(ones.size(), 1);

  const DeviceMesh mixed = Mesh("a=2,b=1,c=3");
  EXPECT_THAT(mixed.Flatten({"a", "b"}, "ab"), IsOkAndHolds(Mesh("ab=2,c=3")));
  EXPECT_THAT(mixed.Flatten({"b", "c"}, "bc"), IsOkAndHolds(Mesh("a=2,bc=3")));
  EXPECT_THAT(mixed.Flatten({"a", "b", "c"}, "x"), IsOkAndHolds(Mesh("x=6")));
  EXPECT_THAT(mixed.Flatten({"c", "b"}, "cb"), IsOkAndHolds(Mesh("a=2,cb=3")));
  EXPECT_THAT(mixed.Slice({"b"}, 4), IsOkAndHolds(Mesh("b=1@4")));
}

TEST(DeviceMeshTest, TextParsesBack) {
  for (const char* text : kMeshes) {
    EXPECT_EQ(Mesh(text).ToString(), text);
    EXPECT_THAT(DeviceMesh::Parse(Mesh(text).ToString()),
                IsOkAndHolds(Mesh(text)));
  }
  EXPECT_EQ(Mesh(" dp = 2 , tp = 4 @ 8 "), Mesh("dp=2,tp=4@8"));
  EXPECT_EQ(Mesh("dp=2:4,tp=4:1").ToString(), "dp=2,tp=4");
  EXPECT_EQ(Mesh("dp=2,tp=4@0").ToString(), "dp=2,tp=4");
}

TEST(DeviceMeshTest, SlicesAndFlatteningsParseBack) {
  for (const char* text : kMeshes) {
    const DeviceMesh mesh = Mesh(text);
    for (const MeshAxis& axis : mesh.axes()) {
      for (int rank : Ranks(mesh)) {
        ASSERT_OK_AND_ASSIGN(const DeviceMesh slice,
                             mesh.Slice({axis.name}, rank));
        EXPECT_THAT(DeviceMesh::Parse(slice.ToString()), IsOkAndHolds(slice));
      }
      ASSERT_OK_AND_ASSIGN(const DeviceMesh flat,
                           mesh.Flatten({axis.name}, "flat"));
      EXPECT_THAT(DeviceMesh::Parse(flat.ToString()), IsOkAndHolds(flat));
    }
  }
}

TEST(DeviceMeshTest, ParseErrorsQuoteWhatDoesNotParse) {
  EXPECT_THAT(DeviceMesh::Parse("dp=x,tp=4"),
              IsInvalid("mesh: want an axis size, found 'x,tp=4' in "
                        "'dp=x,tp=4'"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2,"), IsInvalid("found the end"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2 tp=4"), IsInvalid("want ',' or '@'"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2@"), IsInvalid("an offset"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2@1,"), IsInvalid("the end of the mesh"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2@-1"), IsInvalid("-1"));
  EXPECT_THAT(DeviceMesh::Parse("dp=0"), IsInvalid("size 0"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2:0"), IsInvalid("stride 0"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2:-1"), IsInvalid("stride -1"));
  EXPECT_THAT(DeviceMesh::Parse("dp=2:4,tp=4"),
              IsInvalid("axis 'dp' has a stride and axis 'tp' has none"));
  EXPECT_THAT(DeviceMesh::Parse("dp=4294967298"), IsInvalid("axis size"));
}

TEST(DeviceMeshTest, SurvivesHostileText) {
  constexpr uint32_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  const std::vector<std::string> valid = {"dp=2,tp=4", "a=3:10,b=2:3,c=3:1@7"};
  for (const std::string& text : HostileTexts(valid, kSeed, 5000)) {
    const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(text);
    if (mesh.ok()) {
      EXPECT_THAT(DeviceMesh::Parse(mesh->ToString()), IsOkAndHolds(*mesh));
    } else {
      EXPECT_THAT(mesh, StatusIs(absl::StatusCode::kInvalidArgument));
    }
  }
}

TEST(DeviceMeshTest, HashesAsItCompares) {
  std::vector<DeviceMesh> meshes;
  for (const char* text : kMeshes) meshes.push_back(Mesh(text));
  meshes.push_back(Mesh("dp=2,ep=4"));
  meshes.push_back(Mesh("dp=4,tp=2"));
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(meshes));
  for (size_t i = 0; i < meshes.size(); ++i) {
    for (size_t j = 0; j < meshes.size(); ++j) {
      EXPECT_EQ(meshes[i] == meshes[j], i == j);
    }
  }
}

TEST(DeviceMeshTest, StaysWholeWhereItIsMovedFrom) {
  DeviceMesh from = DeviceMesh::Parse("dp=2,tp=4").value();
  const DeviceMesh copy = from;
  const DeviceMesh to = std::move(from);
  EXPECT_EQ(from, copy);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(to, copy);
}

}  // namespace
}  // namespace tessera
