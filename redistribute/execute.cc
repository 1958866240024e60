#include "tessera/redistribute/execute.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/communicator.h"
#include "tessera/redistribute/rank_program.h"

namespace tessera {
namespace {

using internal::RankProgram;

// The group of all ranks that execute the plan.
absl::StatusOr<Communicator*> GroupOf(const Plan& plan, CommSet& comms,
                                      Stream& stream) {
  const DeviceMesh& from = plan.source().mesh();
  const DeviceMesh& to = plan.target().mesh();
  if (from != to) return comms.GetUnion({from, to}, stream);
  MeshCoords axes;
  for (int axis = 0; axis < from.num_axes(); ++axis) axes.push_back(axis);
  return comms.Get(from, axes, stream);
}

absl::Status Compare(const Plan& plan, CommSet& comms, Stream& stream) {
  const bool takes_part = plan.source().mesh().Contains(comms.rank()) ||
                          plan.target().mesh().Contains(comms.rank());
  if (!takes_part || plan.launches() == 0) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(Communicator * group, GroupOf(plan, comms, stream));
  return comms.Agree(*group, plan.fingerprint(), [&] {
    return absl::StrCat(
        "plan ", absl::Hex(plan.fingerprint(), absl::kZeroPad16), " of ",
        plan.source().meta().ToString(), " on mesh '",
        plan.source().mesh().ToString(), "': ", plan.ToString());
  });
}

}  // namespace

absl::StatusOr<PreparedPlan> Prepare(std::shared_ptr<const Plan> plan,
                                     CommSet& comms, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(Compare(*plan, comms, stream));
  TESSERA_ASSIGN_OR_RETURN(RankProgram program,
                           RankProgram::Create(*plan, comms, stream));
  return PreparedPlan(std::move(plan), comms.rank(), stream,
                      std::make_unique<RankProgram>(std::move(program)));
}

PreparedPlan::PreparedPlan(std::shared_ptr<const Plan> plan, int rank,
                           Stream& stream, std::unique_ptr<RankProgram> program)
    : plan_(std::move(plan)),
      rank_(rank),
      stream_(&stream),
      program_(std::move(program)) {}
PreparedPlan::PreparedPlan(PreparedPlan&&) noexcept = default;
PreparedPlan& PreparedPlan::operator=(PreparedPlan&&) noexcept = default;
PreparedPlan::~PreparedPlan() = default;

int64_t PreparedPlan::workspace_bytes() const {
  return program_->workspace_bytes();
}

absl::Status PreparedPlan::Execute(const TensorView& source,
                                   const TensorView& target,
                                   Workspace workspace) {
  TESSERA_RETURN_IF_ERROR(program_->CheckViews(*plan_, source, target));
  TESSERA_RETURN_IF_ERROR(
      internal::CheckWorkspace(workspace, workspace_bytes(), rank_));
  program_->Begin(source, target, workspace.data);
  const absl::Status status = RunAllSteps();
  return status.ok() ? status : program_->Fail(status);
}

absl::Status PreparedPlan::RunAllSteps() {
  for (int i = 0; i < program_->num_steps(); ++i) {
    TESSERA_RETURN_IF_ERROR(program_->RunLocally(i));
    if (Communicator* group = program_->group(i)) {
      TESSERA_RETURN_IF_ERROR(group->Issue(program_->call(i)));
    }
  }
  return program_->Finish();
}

absl::Status Execute(const Plan& plan, const TensorView& source,
                     const TensorView& target, CommSet& comms, Stream& stream) {
  // Borrowed, for this call only.
  const std::shared_ptr<const Plan> borrowed(std::shared_ptr<void>(), &plan);
  TESSERA_ASSIGN_OR_RETURN(PreparedPlan prepared,
                           Prepare(borrowed, comms, stream));
  return internal::WithWorkspace(
      prepared.workspace_bytes(), stream, [&](Workspace workspace) {
        return prepared.Execute(source, target, workspace);
      });
}

}  // namespace tessera
