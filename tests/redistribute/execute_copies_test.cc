// Bytes that executing a plan copies from one place on a rank to another.

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/status_matchers.h"
#include "tests/watched_stream.h"

namespace tessera {
namespace {

using ::tessera::testing::AllLayouts;
using ::tessera::testing::WatchedStream;

// Elements that the rank has before and after a step between sharded layouts.
int64_t KeptElements(const Step& step, int rank) {
  const Region before = step.before.RegionOf(rank);
  const Region after = step.after.RegionOf(rank);
  int64_t elements = 1;
  for (size_t dim = 0; dim < before.box.size(); ++dim) {
    elements *= Intersect(before.box[dim], after.box[dim]).size();
  }
  return elements;
}

bool EndsWithACollective(const Plan& plan) {
  return !plan.steps().empty() && Communicates(plan.steps().back().kind);
}

// What a plan may copy at most on this rank: collectives write where they
// shall, and slices are only looked at. But an exchange sends nobody what stays
// on the rank, and what comes last and is local has to get into the target.
int64_t ForcedBytes(const Plan& plan, int rank) {
  int64_t bytes = 0;
  for (const Step& step : plan.steps()) {
    if (step.kind == StepKind::kExchange) {
      bytes += KeptElements(step, rank) * SizeOf(plan.source().dtype());
    }
  }
  if (EndsWithACollective(plan)) return bytes;
  return bytes + plan.target().LocalMeta(rank).num_bytes();
}

void ExpectNoNeedlessCopies(const char* mesh_text, const char* shape) {
  const DeviceMesh mesh = *DeviceMesh::Parse(mesh_text);
  const TensorMeta meta =
      *TensorMeta::Create(DType::kF32, *Shape::Parse(shape));
  const std::vector<Layout> layouts = AllLayouts(meta, mesh, {});
  int64_t collectives = 0;
  EXPECT_OK(RunLocalRanks(mesh.size(), [&](LocalRank& rank) -> absl::Status {
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) {
        TESSERA_ASSIGN_OR_RETURN(
            const Plan plan, MakePlan(source, target, Topology::LocalCpu()));
        const TensorMeta before = source.LocalMeta(rank.rank);
        const TensorMeta after = target.LocalMeta(rank.rank);
        std::vector<float> from(before.num_elements(), 1);
        std::vector<float> to(after.num_elements(), 0);
        WatchedStream stream(rank.stream);
        CommSet comms(rank.comms.world());
        TESSERA_RETURN_IF_ERROR(Execute(plan, TensorView(from.data(), before),
                                        TensorView(to.data(), after), comms,
                                        stream));
        TESSERA_RETURN_IF_ERROR(stream.Synchronize());
        EXPECT_LE(stream.copied_bytes, ForcedBytes(plan, rank.rank))
            << plan.ToString() << " on rank " << rank.rank;
        if (rank.rank == 0 && EndsWithACollective(plan)) ++collectives;
      }
    }
    return absl::OkStatus();
  }));
  EXPECT_GT(collectives, 20) << "hardly anything was tested";
}

TEST(ExecuteCopiesTest, CopiesNothingThatTheLayoutsDoNotForce) {
  for (const char* shape : {"[4,6]", "[5,3]", "[7,2,3]"}) {
    SCOPED_TRACE(shape);
    ExpectNoNeedlessCopies("x=2,y=2", shape);
    ExpectNoNeedlessCopies("x=2,y=3", shape);
  }
}

}  // namespace
}  // namespace tessera
