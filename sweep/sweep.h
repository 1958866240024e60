#ifndef TESSERA_SWEEP_SWEEP_H_
#define TESSERA_SWEEP_SWEEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/mesh/topology.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"

// Sweeps: how long redistributions take over many meshes, tensors and layouts,
// beside what was predicted and what the machine can do. Ranks are threads of
// this process.

namespace tessera {

// Every mesh with every shape, every size and every pair of layouts.
//
//   SweepSpec spec;
//   TESSERA_ASSIGN_OR_RETURN(spec.meshes, Factorizations(8));
//   TESSERA_ASSIGN_OR_RETURN(Shape shape, Shape::Create({4096, 4096}));
//   spec.shapes = {shape};
//   spec.from = {"P"};
//   spec.to = {"R", "S(0)"};
//   TESSERA_RETURN_IF_ERROR(RunSweep(spec, [&](const SweepRow& row) {
//     std::cout << row.mesh << " " << row.plan << " " << row.seconds << "\n";
//   }));
struct SweepSpec {
  std::vector<DeviceMesh> meshes;
  std::vector<Shape> shapes;
  DType dtype = DType::kF32;

  // Where not empty, dim 0 of each shape is made as long as gives the tensor
  // about so many bytes.
  std::vector<int64_t> bytes;

  // Layouts as Layout::With reads them, "[P(sum), S(0)]", or one placement for
  // all axes, "S(0)".
  std::vector<std::string> from;
  std::vector<std::string> to;
  // Instead: all pairs of different layouts that R, S(d) and P(sum) make, axes
  // that shard one dim cutting it in mesh order.
  bool all_pairs = false;

  Topology topology = Topology::LocalCpu();  // for the planner and predictions

  // Times are medians of so many turns, each of which repeats what it measures
  // for about `turn_seconds`, at least once.
  int turns = 5;
  double turn_seconds = 0.0002;

  // What needs more memory, on all ranks together, is skipped.
  int64_t max_bytes = int64_t{4} << 30;
};

// What a sweep found out about one combination. Times are in seconds, those of
// ranks as long as the slowest takes. A combination that was skipped has no
// figures.
struct SweepRow {
  std::string mesh;    // "a=2,b=4"
  std::string tensor;  // "f32[4096,4096]"
  std::string from;    // "[P(sum), S(0)]", or as given where it does not fit
  std::string to;
  std::string skipped;  // why; empty where measured

  std::string plan;  // Plan::ToString
  std::vector<std::string> steps;
  int64_t launches = 0;
  // What a rank must write of the target at the least, or, where addends are
  // reduced, read of the source, if that is more: the most of any rank. Of one
  // collective it is what nccl-tests takes for its size.
  int64_t bytes = 0;
  int64_t bytes_received = 0;  // Plan::bytes_received

  double planning_seconds = 0;   // without a cache
  double predicted_seconds = 0;  // by the topology
  double seconds = 0;
  double memcpy_seconds = 0;  // of `bytes` on every rank
  // Of the plan's collectives one by one, called on memory that is there;
  // nullopt where it has none, or steps that communicate otherwise.
  std::optional<double> bare_seconds;

  double MemcpyRatio() const;
  std::optional<double> BareRatio() const;
  // As nccl-tests defines them, in bytes per second: `bytes` over time, and
  // that times 2(n-1)/n for an all-reduce over n ranks, (n-1)/n for the other
  // collectives. That is bytes_received over time, which busbw is for any plan.
  double AlgBandwidth() const;
  double BusBandwidth() const;
};

// Hands the rows to `sink`, one by one as they are measured: by mesh, shape,
// size, pair of layouts, each in the order of `spec`.
// ERRORS: InvalidArgument for no meshes or shapes; for neither layouts nor all
// pairs, or both; for turns < 1; for more than a million combinations; those of
// communication, which end the sweep.
absl::Status RunSweep(const SweepSpec& spec,
                      absl::FunctionRef<void(const SweepRow&)> sink);

// All meshes of `world` ranks: the ways to write it as a product of factors
// above 1, in every order, axes called a, b, c, ...; shorter ones first. Of 8:
// "a=8", "a=2,b=4", "a=4,b=2", "a=2,b=2,c=2".
// ERRORS: InvalidArgument for world outside [1, 65536].
absl::StatusOr<std::vector<DeviceMesh>> Factorizations(int world);

// "2x4", which is "a=2,b=4", or what DeviceMesh::Parse reads.
// ERRORS: InvalidArgument, quoting the part that does not parse.
absl::StatusOr<DeviceMesh> ParseSweepMesh(absl::string_view text);

}  // namespace tessera

#endif  // TESSERA_SWEEP_SWEEP_H_
