#include "tessera/redistribute/redistributor.h"

#include <utility>

#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera {

absl::StatusOr<PreparedPlan*> Redistributor::Prepare(const Layout& source,
                                                     const Layout& target) {
  if (PreparedPlan* prepared = prepared_.Find({&source, &target})) {
    return prepared;
  }
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan,
                           plans_.Get(source, target));
  const internal::PlanEnds key = internal::PlanEnds::Of(*plan);
  TESSERA_ASSIGN_OR_RETURN(PreparedPlan prepared,
                           tessera::Prepare(std::move(plan), comms_, stream_));
  return &prepared_.Insert(key, std::move(prepared));
}

absl::StatusOr<Workspace> Redistributor::WorkspaceOf(int64_t bytes) {
  if (bytes > workspace_.bytes()) {
    workspace_.ResetAfter(stream_);
    TESSERA_ASSIGN_OR_RETURN(
        workspace_, stream_.device().Allocate(bytes, "workspace", &stream_));
  }
  return Workspace{workspace_.data(), workspace_.bytes()};
}

absl::Status Redistributor::RedistributeInto(const ShardedTensor& source,
                                             const ShardedTensor& target) {
  TESSERA_ASSIGN_OR_RETURN(PreparedPlan * prepared,
                           Prepare(source.layout(), target.layout()));
  TESSERA_ASSIGN_OR_RETURN(const Workspace workspace,
                           WorkspaceOf(prepared->workspace_bytes()));
  return prepared->Execute(source.local(), target.local(), workspace);
}

absl::StatusOr<ShardedTensor> Redistributor::Redistribute(
    const ShardedTensor& source, const Layout& target) {
  TESSERA_ASSIGN_OR_RETURN(
      ShardedTensor result,
      ShardedTensor::Allocate(target, comms_.rank(), stream_.device()));
  const absl::Status done = RedistributeInto(source, result);
  if (!done.ok()) {
    result.ResetAfter(stream_);  // the stream may still write to it
    return done;
  }
  return result;
}

}  // namespace tessera
