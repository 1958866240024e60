#include "tessera/redistribute/rank_program.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera::internal {
namespace {

// Plans may come from elsewhere than MakePlan.
absl::Status CheckSteps(const Plan& plan) {
  for (const Step& step : plan.steps()) {
    const bool takes_any_axes =
        step.kind == StepKind::kRelabel || step.kind == StepKind::kExchange;
    const bool takes_several = Communicates(step.kind) && !step.axes.empty();
    if (takes_any_axes || takes_several || step.axes.size() == 1) continue;
    return absl::UnimplementedError(absl::StrCat(
        "redistribute: want one mesh axis in a local step and at least one in "
        "a collective, found ",
        step.Name()));
  }
  return absl::OkStatus();
}

// How a collective over `axes` cuts a dim of `extent`: the axes one after the
// other, the first of them major.
ExtentSplit NestedSplit(int64_t extent, const DeviceMesh& mesh,
                        absl::Span<const int> axes) {
  std::vector<int64_t> sizes = {extent};
  for (int axis : axes) {
    const int64_t parts = mesh.axis(axis).size;
    std::vector<int64_t> finer;
    finer.reserve(sizes.size() * parts);
    for (int64_t size : sizes) {
      for (int64_t i = 0; i < parts; ++i) {
        finer.push_back(CeilSplit(size, parts, i).size());
      }
    }
    sizes = std::move(finer);
  }
  const int64_t parts = static_cast<int64_t>(sizes.size());
  bool is_ceil = true;
  for (int64_t i = 0; i < parts && is_ceil; ++i) {
    is_ceil = sizes[i] == CeilSplit(extent, parts, i).size();
  }
  return is_ceil ? ExtentSplit() : ExtentSplit::Explicit(sizes).value();
}

CollectiveKind CallOf(StepKind kind) {
  switch (kind) {
    case StepKind::kAllGather:
      return CollectiveKind::kAllGather;
    case StepKind::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case StepKind::kAllToAll:
      return CollectiveKind::kAllToAll;
    case StepKind::kExchange:
      return CollectiveKind::kSendRecv;
    default:
      return CollectiveKind::kAllReduce;
  }
}

// x op identity is x, bit for bit: x + -0.0 keeps the sign of zeros. Sum and
// product only.
double IdentityOf(ReduceOp op) { return op == ReduceOp::kProduct ? 1.0 : -0.0; }

// True if all coordinates of an axis keep the value when Replicate becomes
// Partial; else that at 0 does, and the others hold the identity.
bool AllKeepTheValue(ReduceOp op) {
  return op == ReduceOp::kAvg || op == ReduceOp::kMin || op == ReduceOp::kMax;
}

// The communicator of an exchange: one group per set of axes, in whichever
// order a step names them.
absl::StatusOr<Communicator*> ExchangeGroup(const Step& step, CommSet& comms,
                                            Stream& stream) {
  if (step.before.mesh() != step.after.mesh()) {
    return comms.GetUnion({step.before.mesh(), step.after.mesh()}, stream);
  }
  MeshCoords axes(step.axes.begin(), step.axes.end());
  absl::c_sort(axes);
  return comms.GetTogether(step.before.mesh(), axes, stream);
}

absl::Status CheckView(absl::string_view what, const TensorView& view,
                       const Layout& layout, int rank) {
  if (!layout.mesh().Contains(rank)) return absl::OkStatus();
  const TensorMeta wanted = layout.LocalMeta(rank);
  if (view.meta() == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "redistribute: on rank ", rank, " the ", what, " of ", layout.ToString(),
      " on mesh '", layout.mesh().ToString(), "' wants a view of ",
      wanted.ToString(), ", found ", view.meta().ToString()));
}

}  // namespace

RankProgram::RankProgram(const Plan& plan, int rank, Stream& stream)
    : rank_(rank),
      stream_(&stream),
      source_meta_(plan.source().LocalMeta(rank)),
      target_meta_(plan.target().LocalMeta(rank)) {}

absl::Status RankProgram::CheckViews(const Plan& plan, const TensorView& source,
                                     const TensorView& target) const {
  if (source.meta() == source_meta_ && target.meta() == target_meta_) {
    return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(CheckView("source", source, plan.source(), rank_));
  return CheckView("target", target, plan.target(), rank_);
}

absl::StatusOr<RankProgram> RankProgram::Create(const Plan& plan,
                                                CommSet& comms,
                                                Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckSteps(plan));
  const auto contains = [&](const Layout& layout) {
    return layout.mesh().Contains(comms.rank());
  };
  RankProgram program(plan, comms.rank(), stream);
  const std::vector<Storage> storage = StorageOfSteps(plan.steps());
  for (size_t i = 0; i < storage.size(); ++i) {
    const Step& step = plan.steps()[i];
    // Kept as a step of nothing, so that all ranks count steps alike.
    PreparedStep& prepared = program.steps_.emplace_back();
    if (!contains(step.before) && !contains(step.after)) continue;
    prepared = Prepare(step, storage[i], comms.rank());
    if (!Communicates(step.kind)) continue;
    TESSERA_RETURN_IF_ERROR(AddCommunication(step, comms, stream, prepared));
  }
  // Without a step that writes, the value is in the source still.
  const bool in_source = storage.empty() || storage.back() == Storage::kSource;
  program.copies_at_the_end_ = in_source && contains(plan.target());
  program.PlaceBuffers();
  return program;
}

RankProgram::PreparedStep RankProgram::Prepare(const Step& step,
                                               Storage storage, int rank) {
  PreparedStep prepared;
  prepared.kind = step.kind;
  prepared.storage = storage;
  prepared.after = step.after.LocalMeta(rank);
  const bool is_local = !Communicates(step.kind);
  if (!is_local || step.kind == StepKind::kRelabel) return prepared;

  const int axis = step.axes.front();
  const Placement& before = step.before.placement(axis);
  const Placement& after = step.after.placement(axis);
  const int64_t size = step.before.mesh().axis(axis).size;
  const int coordinate = (*step.before.mesh().CoordsOf(rank))[axis];
  prepared.was_shard = before.is_shard();
  if (before.is_shard() || after.is_shard()) {
    // The whole lies where the axis does not cut.
    prepared.dim = before.is_shard() ? before.dim() : after.dim();
    const Layout& whole = before.is_shard() ? step.after : step.before;
    prepared.own = CeilSplit(whole.LocalMeta(rank).shape().extent(prepared.dim),
                             size, coordinate);
  }
  if (step.kind == StepKind::kFill) {
    prepared.keeps = AllKeepTheValue(after.op()) || coordinate == 0;
    prepared.factor = IdentityOf(after.op());
  } else if (step.kind == StepKind::kScale) {
    const auto n = static_cast<double>(size);
    prepared.factor = after.op() == ReduceOp::kAvg ? n : 1.0 / n;
  }
  return prepared;
}

absl::Status RankProgram::AddCommunication(const Step& step, CommSet& comms,
                                           Stream& stream,
                                           PreparedStep& prepared) {
  Collective& call = prepared.call;
  call.kind = CallOf(step.kind);
  const int rank = comms.rank();
  if (step.kind == StepKind::kExchange) {
    TESSERA_ASSIGN_OR_RETURN(prepared.group,
                             ExchangeGroup(step, comms, stream));
    absl::flat_hash_map<int, int> group_ranks;
    for (int member : prepared.group->members()) {
      group_ranks.emplace(member, static_cast<int>(group_ranks.size()));
    }
    RankExchange parts = ExchangeOf(step, rank);
    const auto messages = [&](absl::Span<BoxMessage> of_world) {
      std::vector<Message> result;
      result.reserve(of_world.size());
      for (BoxMessage& message : of_world) {
        result.push_back(
            {group_ranks.at(message.peer), std::move(message.box)});
      }
      return result;
    };
    prepared.had = step.before.RegionOf(rank);
    prepared.has = step.after.RegionOf(rank);
    prepared.kept = std::move(parts.kept);
    prepared.sends = messages(absl::MakeSpan(parts.sends));
    prepared.receives = messages(absl::MakeSpan(parts.receives));
    prepared.send_views.reserve(prepared.sends.size());
    prepared.receive_views.reserve(prepared.receives.size());
    return absl::OkStatus();
  }

  TESSERA_ASSIGN_OR_RETURN(
      prepared.group, comms.GetTogether(step.before.mesh(), step.axes, stream));
  const Placement& before = step.before.placement(step.axes.front());
  const Placement& after = step.after.placement(step.axes.front());
  const auto split = [&](const Layout& whole, int dim) {
    return NestedSplit(whole.LocalMeta(rank).shape().extent(dim),
                       step.before.mesh(), step.axes);
  };
  if (before.is_partial()) call.op = before.op();
  if (after.is_shard()) {
    call.send_dim = after.dim();
    call.send_split = split(step.before, after.dim());
  }
  if (before.is_shard()) {
    call.recv_dim = before.dim();
    call.recv_split = split(step.after, before.dim());
  }
  return absl::OkStatus();
}

// At most two buffers are live at a time, one step's and the next one's: they
// lie at either end in turn.
void RankProgram::PlaceBuffers() {
  int64_t held = 0;  // by the buffer that the value is in
  for (const PreparedStep& step : steps_) {
    if (step.storage == Storage::kNewBuffer) {
      const int64_t made = step.after.num_bytes();
      workspace_bytes_ = std::max(workspace_bytes_, held + made);
      held = made;
    } else if (step.storage != Storage::kWorkspace) {
      held = 0;
    }
  }
  bool at_the_end = false;
  for (PreparedStep& step : steps_) {
    if (step.storage != Storage::kNewBuffer) continue;
    step.offset = at_the_end ? workspace_bytes_ - step.after.num_bytes() : 0;
    at_the_end = !at_the_end;
  }
}

void RankProgram::Begin(const TensorView& source, const TensorView& target,
                        void* workspace) {
  value_ = source;
  target_ = target;
  workspace_ = static_cast<std::byte*>(workspace);
}

TensorView RankProgram::OutOf(const PreparedStep& step) const {
  switch (step.storage) {
    case Storage::kNewBuffer:
      return TensorView(workspace_ + step.offset, step.after);
    case Storage::kTarget:
      return target_;
    case Storage::kSource:
    case Storage::kWorkspace:
      return value_;
  }
  return value_;
}

absl::Status RankProgram::RunLocally(int i) {
  PreparedStep& step = steps_[i];
  if (step.storage == Storage::kSource) {
    if (step.kind == StepKind::kSlice)
      value_ = value_.Slice(step.dim, step.own);
    return absl::OkStatus();
  }
  const TensorView out = OutOf(step);
  TESSERA_RETURN_IF_ERROR(Write(step, out));
  value_ = out;
  return absl::OkStatus();
}

absl::Status RankProgram::Finish() {
  return copies_at_the_end_ ? Copy(target_, value_) : absl::OkStatus();
}

absl::Status RankProgram::Fail(const absl::Status& error) {
  for (const PreparedStep& step : steps_) {
    if (step.group != nullptr) step.group->Abort(error);
  }
  stream_->Launch({.name = "fail"}, [error = error] { return error; })
      .IgnoreError();
  return error;
}

// Makes `out` of the value, or the call that does. `out` is the value where
// the step works in place.
absl::Status RankProgram::Write(PreparedStep& step, const TensorView& out) {
  switch (step.kind) {
    case StepKind::kRelabel:
      return absl::OkStatus();
    case StepKind::kSlice:
      return Copy(out, value_.Slice(step.dim, step.own));
    case StepKind::kFill:
      return Fill(step, out);
    case StepKind::kScale:
      TESSERA_RETURN_IF_ERROR(Copy(out, value_));
      return stream_->device().kernels().Scale(*stream_, out, step.factor);
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
    case StepKind::kAllReduce:
    case StepKind::kAllToAll:
      step.call.send = value_;
      step.call.recv = out;
      return absl::OkStatus();
    case StepKind::kExchange:
      return StartExchange(step, out);
  }
  return absl::OkStatus();
}

absl::Status RankProgram::Fill(const PreparedStep& step,
                               const TensorView& out) {
  if (!step.was_shard && step.keeps) return Copy(out, value_);
  TESSERA_RETURN_IF_ERROR(
      stream_->device().kernels().Fill(*stream_, out, step.factor));
  return step.was_shard ? Copy(out.Slice(step.dim, step.own), value_)
                        : absl::OkStatus();
}

absl::Status RankProgram::StartExchange(PreparedStep& step,
                                        const TensorView& out) {
  for (const Box& box : step.kept) {
    TESSERA_RETURN_IF_ERROR(
        Copy(PartOf(out, step.has, box), PartOf(value_, step.had, box)));
  }
  ViewParts(step.sends, value_, step.had, step.send_views);
  ViewParts(step.receives, out, step.has, step.receive_views);
  step.call.sends = step.send_views;
  step.call.recvs = step.receive_views;
  return absl::OkStatus();
}

void RankProgram::ViewParts(absl::Span<const Message> messages,
                            const TensorView& local, const Region& region,
                            Transfers& views) {
  views.clear();
  for (const Message& message : messages) {
    views.push_back({message.peer, PartOf(local, region, message.box)});
  }
}

absl::Status RankProgram::Copy(const TensorView& out, const TensorView& in) {
  if (out.data() == in.data()) return absl::OkStatus();  // in place
  return stream_->device().kernels().Copy(*stream_, out, in);
}

}  // namespace tessera::internal
