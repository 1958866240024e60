#include "tessera/redistribute/execute_many.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/device.h"
#include "tessera/redistribute/rank_program.h"

namespace tessera {
namespace {

using internal::RankProgram;

// The meshes of all plans that communicate, each once, in a fixed order.
std::vector<DeviceMesh> MeshesOf(const ManyPlan& plan) {
  std::vector<DeviceMesh> meshes;
  for (const Plan& one : plan.plans()) {
    if (one.launches() == 0) continue;
    for (const Layout* layout : {&one.source(), &one.target()}) {
      if (!absl::c_linear_search(meshes, layout->mesh())) {
        meshes.push_back(layout->mesh());
      }
    }
  }
  return meshes;
}

std::string Describe(const ManyPlan& plan) {
  return absl::StrCat(
      "plans ", absl::Hex(plan.fingerprint(), absl::kZeroPad16), " of ",
      plan.plans().size(), " tensors: ", plan.ToString(), ", from ",
      absl::StrJoin(plan.plans(), ", ", [](std::string* out, const Plan& one) {
        absl::StrAppend(out, one.source().meta().ToString(), " ",
                        one.ToString());
      }));
}

// Where the workspace of each plan lies: those of the widest dtype first, so
// that all are aligned without gaps.
std::vector<int64_t> OffsetsOf(absl::Span<const Plan> plans,
                               absl::Span<const RankProgram> programs) {
  std::vector<size_t> order(plans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto width = [&](size_t i) {
    return SizeOf(plans[i].source().dtype());
  };
  absl::c_stable_sort(order,
                      [&](size_t a, size_t b) { return width(a) > width(b); });
  std::vector<int64_t> offsets(plans.size());
  int64_t end = 0;
  for (size_t i : order) {
    offsets[i] = end;
    end += programs[i].workspace_bytes();
  }
  return offsets;
}

absl::Status Compare(const ManyPlan& plan, CommSet& comms, Stream& stream) {
  const std::vector<DeviceMesh> meshes = MeshesOf(plan);
  const bool takes_part = absl::c_any_of(meshes, [&](const DeviceMesh& mesh) {
    return mesh.Contains(comms.rank());
  });
  if (!takes_part) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(Communicator * group,
                           comms.GetUnion(meshes, stream));
  return comms.Agree(*group, plan.fingerprint(),
                     [&] { return Describe(plan); });
}

}  // namespace

PreparedManyPlan::PreparedManyPlan(std::shared_ptr<const ManyPlan> plan,
                                   int rank, Stream& stream)
    : plan_(std::move(plan)), rank_(rank), stream_(&stream) {}
PreparedManyPlan::PreparedManyPlan(PreparedManyPlan&&) noexcept = default;
PreparedManyPlan& PreparedManyPlan::operator=(PreparedManyPlan&&) noexcept =
    default;
PreparedManyPlan::~PreparedManyPlan() = default;

absl::StatusOr<PreparedManyPlan> Prepare(std::shared_ptr<const ManyPlan> plan,
                                         CommSet& comms, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(Compare(*plan, comms, stream));
  PreparedManyPlan prepared(std::move(plan), comms.rank(), stream);
  for (const Plan& one : prepared.plan_->plans()) {
    TESSERA_ASSIGN_OR_RETURN(RankProgram program,
                             RankProgram::Create(one, comms, stream));
    prepared.programs_.push_back(std::move(program));
  }
  prepared.offsets_ = OffsetsOf(prepared.plan_->plans(), prepared.programs_);
  prepared.next_steps_.resize(prepared.programs_.size());
  size_t most_calls = 0;
  for (const Stage& stage : prepared.plan_->stages()) {
    most_calls = std::max(most_calls, stage.members.size());
  }
  prepared.calls_.reserve(most_calls);
  return prepared;
}

int64_t PreparedManyPlan::workspace_bytes() const {
  int64_t bytes = 0;
  for (const RankProgram& program : programs_) {
    bytes += program.workspace_bytes();
  }
  return bytes;
}

absl::Status PreparedManyPlan::CheckViews(
    absl::Span<const TensorView> sources,
    absl::Span<const TensorView> targets) const {
  const size_t wanted = programs_.size();
  if (sources.size() != wanted || targets.size() != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("redistribute: on rank ", rank_, " want ", wanted,
                     " sources and targets, found ", sources.size(), " and ",
                     targets.size()));
  }
  for (size_t i = 0; i < wanted; ++i) {
    const absl::Status fits =
        programs_[i].CheckViews(plan_->plans()[i], sources[i], targets[i]);
    if (fits.ok()) continue;
    return absl::Status(fits.code(),
                        absl::StrCat(fits.message(), ", tensor ", i));
  }
  return absl::OkStatus();
}

absl::Status PreparedManyPlan::Execute(absl::Span<const TensorView> sources,
                                       absl::Span<const TensorView> targets,
                                       Workspace workspace) {
  TESSERA_RETURN_IF_ERROR(CheckViews(sources, targets));
  TESSERA_RETURN_IF_ERROR(
      internal::CheckWorkspace(workspace, workspace_bytes(), rank_));
  for (size_t i = 0; i < programs_.size(); ++i) {
    programs_[i].Begin(sources[i], targets[i],
                       static_cast<std::byte*>(workspace.data) + offsets_[i]);
    next_steps_[i] = 0;
  }
  absl::Status status = RunAllStages();
  if (status.ok()) return status;
  for (RankProgram& program : programs_) status = program.Fail(status);
  return status;
}

absl::Status PreparedManyPlan::RunAllStages() {
  for (const Stage& stage : plan_->stages()) {
    TESSERA_RETURN_IF_ERROR(RunStage(stage));
  }
  for (size_t i = 0; i < programs_.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        RunLocallyTo(static_cast<int>(i), programs_[i].num_steps()));
    TESSERA_RETURN_IF_ERROR(programs_[i].Finish());
  }
  return absl::OkStatus();
}

absl::Status PreparedManyPlan::RunStage(const Stage& stage) {
  Communicator* group = nullptr;  // of all members that this rank takes
  calls_.clear();
  for (const StepOfPlan& member : stage.members) {
    TESSERA_RETURN_IF_ERROR(RunLocallyTo(member.plan, member.step + 1));
    const RankProgram& program = programs_[member.plan];
    if (program.group(member.step) == nullptr) continue;
    group = program.group(member.step);
    calls_.push_back(program.call(member.step));
  }
  return group == nullptr ? absl::OkStatus() : group->Issue(calls_);
}

absl::Status PreparedManyPlan::RunLocallyTo(int plan, int end) {
  for (int& next = next_steps_[plan]; next < end; ++next) {
    TESSERA_RETURN_IF_ERROR(programs_[plan].RunLocally(next));
  }
  return absl::OkStatus();
}

absl::Status ExecuteMany(const ManyPlan& plan,
                         absl::Span<const TensorView> sources,
                         absl::Span<const TensorView> targets, CommSet& comms,
                         Stream& stream) {
  // Borrowed, for this call only.
  const std::shared_ptr<const ManyPlan> borrowed(std::shared_ptr<void>(),
                                                 &plan);
  TESSERA_ASSIGN_OR_RETURN(PreparedManyPlan prepared,
                           Prepare(borrowed, comms, stream));
  return internal::WithWorkspace(
      prepared.workspace_bytes(), stream, [&](Workspace workspace) {
        return prepared.Execute(sources, targets, workspace);
      });
}

}  // namespace tessera
