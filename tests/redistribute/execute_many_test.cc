#include "tessera/redistribute/execute_many.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/redistribute/random_layouts.h"
#include "tests/redistribute/reference.h"
#include "tests/redistribute/sampling.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::FindFault;
using ::tessera::testing::kSampleOnly;
using ::tessera::testing::LocalValues;
using ::tessera::testing::RandomLayout;
using ::tessera::testing::RanksOf;
using ::tessera::testing::SeededRandom;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr CpuStreams kBothStreams[] = {CpuStreams::kInline,
                                       CpuStreams::kWorker};

Layout ParseLayout(const std::string& mesh, const std::string& text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Redistribution Between(const std::string& mesh, const std::string& source,
                       const std::string& target) {
  const Layout from = ParseLayout(mesh, source);
  return {from, from.With(target).value()};
}

ManyPlan Many(const std::vector<Redistribution>& tensors) {
  return PlanMany(tensors, Topology::LocalCpu()).value();
}

// Host memory for the pieces of one rank, f32 or f64.
class Pieces {
 public:
  void Add(const Layout& layout, int rank, bool with_values) {
    const TensorMeta meta = layout.LocalMeta(rank);
    auto& bytes = memory_.emplace_back(meta.num_bytes(), std::byte{0x7f});
    views_.emplace_back(bytes.data(), meta);
    if (!with_values || !layout.mesh().Contains(rank)) return;
    const std::vector<double> values = LocalValues(layout, rank);
    for (size_t i = 0; i < values.size(); ++i) {
      if (meta.dtype() == DType::kF32) {
        views_.back().as<float>()[i] = static_cast<float>(values[i]);
      } else {
        views_.back().as<double>()[i] = values[i];
      }
    }
  }

  absl::Span<const TensorView> views() const { return views_; }
  std::vector<double> Values(size_t i) const {
    const TensorView& view = views_[i];
    std::vector<double> values(view.num_elements());
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] = view.dtype() == DType::kF32 ? view.as<float>()[k]
                                              : view.as<double>()[k];
    }
    return values;
  }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TensorView> views_;
};

// Executes all of them at once on as many ranks as threads. `launches` is how
// many launches each rank made.
std::string FaultOf(int world, const ManyPlan& many, CpuStreams streams,
                    std::vector<int64_t>* launches = nullptr) {
  const size_t count = many.plans().size();
  std::vector<std::vector<std::vector<double>>> results(
      count, std::vector<std::vector<double>>(world));
  if (launches != nullptr) launches->assign(world, 0);
  LocalRunOptions options;
  options.device.streams = streams;
  const absl::Status status = RunLocalRanks(
      world,
      [&](LocalRank& self) -> absl::Status {
        Pieces sources;
        Pieces targets;
        for (const Plan& plan : many.plans()) {
          sources.Add(plan.source(), self.rank, /*with_values=*/true);
          targets.Add(plan.target(), self.rank, /*with_values=*/false);
        }
        TESSERA_RETURN_IF_ERROR(ExecuteMany(
            many, sources.views(), targets.views(), self.comms, self.stream));
        TESSERA_RETURN_IF_ERROR(self.stream.Synchronize());
        const auto workspace = self.device.memory().by_tag["workspace"];
        EXPECT_LE(workspace.peak_bytes, many.workspace_bytes());
        EXPECT_EQ(workspace.current_bytes, 0);
        for (size_t i = 0; i < count; ++i) {
          results[i][self.rank] = targets.Values(i);
        }
        if (launches != nullptr) {
          std::set<std::pair<std::string, int64_t>> distinct;
          for (const CollectiveRecord& record : self.comms.log().recent()) {
            distinct.emplace(record.communicator, record.sequence);
          }
          (*launches)[self.rank] = static_cast<int64_t>(distinct.size());
        }
        return absl::OkStatus();
      },
      options);
  if (!status.ok()) return status.ToString();
  for (size_t i = 0; i < count; ++i) {
    const Layout& target = many.plans()[i].target();
    std::vector<std::vector<double>> pieces;
    for (int rank : RanksOf(target.mesh())) pieces.push_back(results[i][rank]);
    const std::string fault = FindFault(target, pieces);
    if (!fault.empty()) {
      return absl::StrCat(many.plans()[i].ToString(), ": ", fault);
    }
  }
  return "";
}

TEST(ExecuteManyTest, TensorsOfAStageShareALaunch) {
  const ManyPlan many =
      Many({Between("dp=2,tp=2", "f32[8,6] [P(sum), S(0)]", "[R, S(1)]"),
            Between("dp=2,tp=2", "f32[5,3] [P(sum), S(0)]", "[R, S(1)]"),
            Between("dp=2,tp=2", "f32[7] [R, S(0)]", "[R, R]"),
            Between("dp=2,tp=2", "f64[9] [R, S(0)]", "[R, R]"),
            Between("dp=2,tp=2", "f32[4,4] [R, R]", "[S(0), S(1)]")});
  ASSERT_LT(many.launches(), 5);
  for (CpuStreams streams : kBothStreams) {
    std::vector<int64_t> launches;
    EXPECT_EQ(FaultOf(4, many, streams, &launches), "");
    EXPECT_THAT(launches, Each(many.launches()));
  }
}

TEST(ExecuteManyTest, GivesTheReferenceValuesOfRandomLists) {
  constexpr int kLists = kSampleOnly ? 5 : 60;
  SeededRandom random;
  const DeviceMesh meshes[] = {DeviceMesh::Parse("x=2,y=2").value(),
                               DeviceMesh::Parse("x=2,y=3").value()};
  for (const DeviceMesh& mesh : meshes) {
    std::vector<std::vector<Layout>> layouts;
    for (const char* meta : {"f32[4,6]", "f64[5,3]", "f32[7]"}) {
      layouts.push_back(AllLayouts(TensorMeta::Parse(meta).value(), mesh,
                                   {ReduceOp::kSum, ReduceOp::kMax}));
    }
    for (int list = 0; list < kLists; ++list) {
      std::vector<Redistribution> tensors(1 + random() % 8);
      for (Redistribution& tensor : tensors) {
        const std::vector<Layout>& some = layouts[random() % layouts.size()];
        tensor = {some[random() % some.size()], some[random() % some.size()]};
      }
      const ManyPlan many = Many(tensors);
      ASSERT_EQ(FaultOf(mesh.size(), many, kBothStreams[list % 2]), "")
          << many.ToTable();
    }
  }
}

// Tensors with ragged cuts and without, within a mesh and from one to another,
// in one list.
TEST(ExecuteManyTest, GivesTheReferenceValuesAcrossCutsAndMeshes) {
  constexpr int kLists = kSampleOnly ? 20 : 200;
  SeededRandom random;
  const DeviceMesh meshes[] = {DeviceMesh::Parse("x=2,y=2").value(),
                               DeviceMesh::Parse("x=2,z=1,y=2").value(),
                               DeviceMesh::Parse("s=3@1").value()};
  const char* const metas[] = {"f32[4,6]", "f64[5,3]", "f32[]", "f64[0,2]",
                               "f32[2,1,2,1,3]"};
  for (int list = 0; list < kLists; ++list) {
    std::vector<Redistribution> tensors(1 + random() % 8);
    for (Redistribution& tensor : tensors) {
      const TensorMeta meta = TensorMeta::Parse(metas[random() % 5]).value();
      const DeviceMesh& mesh = meshes[random() % 3];
      const DeviceMesh& other = random() % 3 == 0 ? meshes[random() % 3] : mesh;
      tensor = {RandomLayout(meta, mesh, /*may_be_partial=*/true, random),
                RandomLayout(meta, other, /*may_be_partial=*/false, random)};
    }
    const ManyPlan many = Many(tensors);
    ASSERT_EQ(FaultOf(5, many, kBothStreams[list % 2]), "") << many.ToTable();
  }
}

// Stages of a pipeline, and ranks that only some of the plans are for.
TEST(ExecuteManyTest, MeshesMayDiffer) {
  const Layout first = ParseLayout("x=2", "f32[6] [S(0)]");
  const Layout second = ParseLayout("x=2@2", "f32[6] [R]");
  const ManyPlan many = Many({{first, second},
                              Between("x=2", "f32[5] [S(0)]", "[R]"),
                              Between("y=2@2", "f32[5] [P(sum)]", "[R]"),
                              {first, second}});
  for (CpuStreams streams : kBothStreams) {
    EXPECT_EQ(FaultOf(5, many, streams), "");
  }
}

TEST(ExecuteManyTest, EqualRedistributionsShareEveryLaunch) {
  const ManyPlan many = Many(std::vector<Redistribution>(
      100, Between("x=4,y=4", "f32[16,16] [S(0), S(1)]", "[S(1), S(0)]")));
  std::vector<int64_t> launches;
  EXPECT_EQ(FaultOf(16, many, CpuStreams::kInline, &launches), "");
  EXPECT_THAT(launches, Each(1));
}

TEST(ExecuteManyTest, OfNoTensorsDoesNothing) {
  EXPECT_EQ(FaultOf(2, ManyPlan(), CpuStreams::kInline), "");
}

TEST(ExecuteManyTest, ChecksItsArguments) {
  const auto many = std::make_shared<const ManyPlan>(
      Many({Between("x=2", "f32[4] [P(max)]", "[P(sum)]"),
            Between("x=2", "f32[4] [R]", "[S(0)]")}));
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(PreparedManyPlan prepared,
                             Prepare(many, self.comms, self.stream));
    Pieces sources;
    Pieces targets;
    for (const Plan& plan : many->plans()) {
      sources.Add(plan.source(), self.rank, /*with_values=*/true);
      targets.Add(plan.target(), self.rank, /*with_values=*/false);
    }
    const auto from = sources.views();
    const auto to = targets.views();
    EXPECT_THAT(
        prepared.Execute(from.first(1), to),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("want 2 sources and targets, found 1 and 2")));
    EXPECT_THAT(prepared.Execute(from, {to[0], to[0]}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("target of f32[4] [S(0)]"),
                               HasSubstr("tensor 1"))));
    EXPECT_EQ(prepared.workspace_bytes(), 8);
    EXPECT_THAT(prepared.Execute(from, to),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("want a workspace of 8 bytes, found 0")));
    std::vector<float> workspace(2);
    return prepared.Execute(from, to, {workspace.data(), 8});
  }));
}

TEST(ExecuteManyTest, RanksWithDifferentListsAllFail) {
  const Redistribution a = Between("x=2", "f32[4] [S(0)]", "[R]");
  const Redistribution b = Between("x=2", "f32[6] [S(0)]", "[R]");
  const std::vector<ManyPlan> lists = {Many({a, b}), Many({b, a})};
  std::vector<absl::Status> results(2);
  EXPECT_OK(RunLocalRanks(2, [&](LocalRank& self) {
    Pieces sources;
    Pieces targets;
    for (const Plan& plan : lists[self.rank].plans()) {
      sources.Add(plan.source(), self.rank, /*with_values=*/true);
      targets.Add(plan.target(), self.rank, /*with_values=*/false);
    }
    results[self.rank] = ExecuteMany(lists[self.rank], sources.views(),
                                     targets.views(), self.comms, self.stream);
    return absl::OkStatus();
  }));
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("rank 0: plans "),
                                  HasSubstr("AG(x) x2, from f32[4]"),
                                  HasSubstr("rank 1: plans "),
                                  HasSubstr("AG(x) x2, from f32[6]")))));
}

}  // namespace
}  // namespace tessera
