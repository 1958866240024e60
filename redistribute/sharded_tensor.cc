#include "tessera/redistribute/sharded_tensor.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/planner.h"

namespace tessera {

absl::StatusOr<ShardedTensor> ShardedTensor::Allocate(Layout layout, int rank,
                                                      Device& device,
                                                      absl::string_view tag) {
  const TensorMeta meta = layout.LocalMeta(rank);
  TESSERA_ASSIGN_OR_RETURN(Buffer storage,
                           device.Allocate(meta.num_bytes(), tag));
  const TensorView local(storage.data(), meta);
  return ShardedTensor(std::move(layout), local, std::move(storage));
}

absl::StatusOr<ShardedTensor> ShardedTensor::Borrow(Layout layout, int rank,
                                                    const TensorView& local) {
  const TensorMeta wanted = layout.LocalMeta(rank);
  if (local.meta() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sharded_tensor: rank ", rank, " of ", layout.ToString(), " on mesh '",
        layout.mesh().ToString(), "' wants a view of ", wanted.ToString(),
        ", found ", local.meta().ToString()));
  }
  return ShardedTensor(std::move(layout), local, Buffer());
}

absl::StatusOr<ShardedTensor> Redistribute(const ShardedTensor& source,
                                           const Layout& target,
                                           const Topology& topology,
                                           CommSet& comms, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const Plan plan,
                           MakePlan(source.layout(), target, topology));
  TESSERA_ASSIGN_OR_RETURN(
      ShardedTensor result,
      ShardedTensor::Allocate(target, comms.rank(), stream.device()));
  const absl::Status executed =
      Execute(plan, source.local(), result.local(), comms, stream);
  if (!executed.ok()) {
    result.ResetAfter(stream);  // the stream may still write to it
    return executed;
  }
  return result;
}

}  // namespace tessera
