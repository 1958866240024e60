// Builds two layouts of one small tensor from bytes, on one mesh or two, with
// ragged cuts or without, plans the way from one to the other, and checks the
// plan, its proof, its JSON and what it does to values; and a plan with less
// workspace.

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tessera/redistribute/plan_json.h"
#include "tessera/redistribute/planner.h"
#include "tessera/redistribute/verify.h"
#include "tests/redistribute/run_plans.h"

namespace tessera {
namespace {

// Narrow floats are left out: with this many ranks, sums of the reference's
// values do not fit them.
constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kI32,
                             DType::kI64};

DeviceMesh TakeMesh(FuzzedDataProvider& bytes, int offset) {
  constexpr int kMaxRanks = 24;
  constexpr const char* kNames[] = {"x", "y", "z", "w"};
  std::vector<DeviceMesh::AxisSize> axes;
  int ranks = 1;
  const int num_axes = bytes.ConsumeIntegralInRange<int>(0, 4);
  for (int axis = 0; axis < num_axes; ++axis) {
    const int most = std::min(5, kMaxRanks / ranks);
    const int size = bytes.ConsumeIntegralInRange<int>(1, most);
    axes.push_back({kNames[axis], size});
    ranks *= size;
  }
  return DeviceMesh::Create(axes, offset).value();
}

TensorMeta TakeMeta(FuzzedDataProvider& bytes) {
  const DType dtype = bytes.PickValueInArray(kDTypes);
  Dims extents(bytes.ConsumeIntegralInRange<int>(0, 3));
  for (int64_t& extent : extents) {
    extent = bytes.ConsumeIntegralInRange<int64_t>(0, 7);
  }
  return TensorMeta::Create(dtype, extents).value();
}

// Of all `extent` elements into `parts`.
RaggedCut TakeCut(FuzzedDataProvider& bytes, int64_t parts, int64_t extent) {
  if (bytes.ConsumeBool()) {
    const int64_t first = -bytes.ConsumeIntegralInRange<int64_t>(0, 20);
    const int64_t least_step =
        std::max<int64_t>(1, (extent - first + parts - 1) / parts);
    return RaggedCut::Affine(
               first, least_step + bytes.ConsumeIntegralInRange<int64_t>(0, 5))
        .value();
  }
  std::vector<int64_t> bounds = {0, extent};
  for (int64_t i = 1; i < parts; ++i) {
    bounds.push_back(bytes.ConsumeIntegralInRange<int64_t>(0, extent));
  }
  std::sort(bounds.begin(), bounds.end());
  return RaggedCut::Explicit(bounds).value();
}

// An error where ops do not mix or the dtype has no averages.
absl::StatusOr<Layout> TakeLayout(FuzzedDataProvider& bytes,
                                  const TensorMeta& meta,
                                  const DeviceMesh& mesh) {
  const int num_dims = meta.shape().num_dims();
  Placements placements;
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < num_dims; ++dim) order.push_back({dim, {}});
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const int dim = bytes.ConsumeIntegralInRange<int>(-2, num_dims - 1);
    if (dim == -2) {
      placements.push_back(Placement::Replicate());
    } else if (dim == -1) {
      placements.push_back(
          Placement::Partial(bytes.PickValueInArray(kAllReduceOps)));
    } else {
      placements.push_back(Placement::Shard(dim));
      auto& axes = order[dim].axes;
      const auto place = bytes.ConsumeIntegralInRange<size_t>(0, axes.size());
      axes.insert(axes.begin() + place, axis);
    }
  }
  absl::StatusOr<Layout> layout = Layout::Create(meta, mesh, placements, order);
  if (!layout.ok() || !bytes.ConsumeBool()) return layout;

  // A cut of what is left, over some of the axes that replicate.
  MeshCoords axes;
  int64_t parts = 1;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (!placements[axis].is_replicate() || bytes.ConsumeBool()) continue;
    const auto place = bytes.ConsumeIntegralInRange<size_t>(0, axes.size());
    axes.insert(axes.begin() + place, axis);
    parts *= mesh.axis(axis).size;
  }
  const RaggedCut cut =
      TakeCut(bytes, parts, layout->LargestRegion().box_elements());
  for (size_t i = 0; i < axes.size(); ++i) {
    placements[axes[i]] = Placement::Ragged(cut, static_cast<int>(i));
  }
  return Layout::Create(meta, mesh, placements, order);
}

Topology TakeTopology(FuzzedDataProvider& bytes, const DeviceMesh& mesh) {
  const auto take_link = [&] {
    Link link;
    link.latency_ps = bytes.ConsumeIntegralInRange<int64_t>(0, 10'000'000);
    link.bytes_per_second =
        bytes.ConsumeIntegralInRange<int64_t>(1, 1'000'000'000'000);
    return link;
  };
  Topology topology = Topology::LocalCpu();
  for (const MeshAxis& axis : mesh.axes()) {
    topology = topology.WithLink(axis.name, take_link()).value();
  }
  return topology;
}

void Require(const Plan& plan, const std::string& fault) {
  if (fault.empty()) return;
  std::cerr << plan.source() << " on '" << plan.source().mesh() << "' to "
            << plan.target() << "\n"
            << plan.ToTable() << fault << "\n";
  std::abort();
}

void Check(const Plan& plan) {
  const absl::Status proof = Verify(plan);
  Require(plan, proof.ok() ? "" : proof.ToString());
  Require(plan, testing::RunReferenceAndFindFault(plan));
  const absl::StatusOr<Plan> read = PlanFromJson(PlanToJson(plan));
  Require(plan, read.ok() ? "" : read.status().ToString());
  Require(plan, *read == plan ? "" : "is another plan when read from JSON");
}

void CheckPlan(FuzzedDataProvider& bytes) {
  const DeviceMesh mesh = TakeMesh(bytes, 0);
  const DeviceMesh other =
      bytes.ConsumeBool()
          ? TakeMesh(bytes, bytes.ConsumeIntegralInRange<int>(0, 30))
          : mesh;
  const TensorMeta meta = TakeMeta(bytes);
  const absl::StatusOr<Layout> source = TakeLayout(bytes, meta, mesh);
  const absl::StatusOr<Layout> target = TakeLayout(bytes, meta, other);
  if (!source.ok() || !target.ok()) return;
  const Topology topology = TakeTopology(bytes, mesh);
  const Plan plan = MakePlan(*source, *target, topology).value();
  Check(plan);

  if (plan.workspace_bytes() == 0) return;
  const int64_t limit = plan.workspace_bytes() - 1;
  const absl::StatusOr<Plan> smaller =
      MakePlan(*source, *target, topology, {.max_workspace_bytes = limit});
  if (smaller.ok()) {
    Check(*smaller);
    Require(*smaller, smaller->workspace_bytes() > limit ? "is too large" : "");
    Require(*smaller, smaller->time_ps() < plan.time_ps() ? "is cheaper" : "");
  } else if (!absl::IsResourceExhausted(smaller.status())) {
    Require(plan, smaller.status().ToString());
  }
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider bytes(data, size);
  tessera::CheckPlan(bytes);
  return 0;
}
