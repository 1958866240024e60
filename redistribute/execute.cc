#include "tessera/redistribute/execute.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/device.h"
#include "tessera/placement/region.h"
#include "tessera/redistribute/exchange.h"
#include "tessera/redistribute/storage.h"
#include "tessera/tensor/index.h"

namespace tessera {
namespace {

using internal::Storage;

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

// The messages of one rank as a group knows them: `local` holds `region`.
std::vector<Transfer> TransfersOf(
    absl::Span<const internal::BoxMessage> messages, const TensorView& local,
    const Region& region, const absl::flat_hash_map<int, int>& group_ranks) {
  std::vector<Transfer> transfers;
  transfers.reserve(messages.size());
  for (const internal::BoxMessage& message : messages) {
    transfers.push_back({group_ranks.at(message.peer),
                         internal::PartOf(local, region, message.box)});
  }
  return transfers;
}

// x op identity is x, bit for bit: x + -0.0 keeps the sign of zeros. Sum and
// product only.
double IdentityOf(ReduceOp op) { return op == ReduceOp::kProduct ? 1.0 : -0.0; }

// True if all coordinates of an axis keep the value when Replicate becomes
// Partial; else that at 0 does, and the others hold the identity.
bool AllKeepTheValue(ReduceOp op) {
  return op == ReduceOp::kAvg || op == ReduceOp::kMin || op == ReduceOp::kMax;
}

// One rank's way through a plan.
class PlanRun {
 public:
  // REQUIRES: the views are those of this rank.
  PlanRun(const TensorView& source, const TensorView& target, CommSet& comms,
          Stream& stream)
      : target_(target), comms_(comms), stream_(stream), value_(source) {}
  ~PlanRun() { workspace_.ResetAfter(stream_); }
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;

  absl::Status Run(const Plan& plan) {
    const std::vector<Storage> storage = internal::StorageOfSteps(plan.steps());
    for (size_t i = 0; i < storage.size(); ++i) {
      const Step& step = plan.steps()[i];
      if (!Contains(step.before) && !Contains(step.after)) continue;
      TESSERA_RETURN_IF_ERROR(RunStep(step, storage[i]));
    }
    // Without a step that writes, the value is in the source still.
    const bool in_source =
        storage.empty() || storage.back() == Storage::kSource;
    return in_source && Contains(plan.target()) ? Copy(target_, value_)
                                                : absl::OkStatus();
  }

 private:
  bool Contains(const Layout& layout) const {
    return layout.mesh().Contains(comms_.rank());
  }

  absl::Status RunStep(const Step& step, Storage storage) {
    switch (storage) {
      case Storage::kSource:
        if (step.kind == StepKind::kSlice) value_ = OwnPiece(step, value_);
        return absl::OkStatus();
      case Storage::kWorkspace:
        return Write(step, value_);
      case Storage::kTarget:
        TESSERA_RETURN_IF_ERROR(Write(step, target_));
        value_ = target_;
        return absl::OkStatus();
      case Storage::kNewBuffer:
        return WriteToNewBuffer(step);
    }
    return absl::OkStatus();
  }

  absl::Status WriteToNewBuffer(const Step& step) {
    const TensorMeta meta = step.after.LocalMeta(comms_.rank());
    TESSERA_ASSIGN_OR_RETURN(Buffer buffer, stream_.device().Allocate(
                                                meta.num_bytes(), "workspace"));
    const TensorView out(buffer.data(), meta);
    // Both buffers go back in stream order, whatever comes of the step.
    std::swap(workspace_, buffer);
    const absl::Status written = Write(step, out);
    buffer.ResetAfter(stream_);
    value_ = out;
    return written;
  }

  // Makes `out` of the value. `out` is the value where the step works in
  // place.
  absl::Status Write(const Step& step, const TensorView& out) {
    switch (step.kind) {
      case StepKind::kRelabel:
        return absl::OkStatus();
      case StepKind::kSlice:
        return Copy(out, OwnPiece(step, value_));
      case StepKind::kFill:
        return Fill(step, out);
      case StepKind::kScale:
        return Scale(step, out);
      case StepKind::kAllGather:
      case StepKind::kReduceScatter:
      case StepKind::kAllReduce:
      case StepKind::kAllToAll:
        return Communicate(step, out);
      case StepKind::kExchange:
        return Exchange(step, out);
    }
    return absl::OkStatus();
  }

  absl::Status Communicate(const Step& step, const TensorView& out) {
    TESSERA_ASSIGN_OR_RETURN(
        Communicator * group,
        comms_.Get(step.before.mesh(), step.axes, stream_));
    const Placement& before = step.before.placement(step.axes.front());
    const Placement& after = step.after.placement(step.axes.front());
    const auto split = [&](const TensorView& whole, int dim) {
      return NestedSplit(whole.shape().extent(dim), step.before.mesh(),
                         step.axes);
    };
    switch (step.kind) {
      case StepKind::kAllGather:
        return group->AllGather(value_, out, before.dim(),
                                split(out, before.dim()));
      case StepKind::kReduceScatter:
        return group->ReduceScatter(before.op(), value_, out, after.dim(),
                                    split(value_, after.dim()));
      case StepKind::kAllReduce:
        return group->AllReduce(before.op(), value_, out);
      default:
        return group->AllToAll(value_, after.dim(), split(value_, after.dim()),
                               out, before.dim(), split(out, before.dim()));
    }
  }

  absl::Status Exchange(const Step& step, const TensorView& out) {
    TESSERA_ASSIGN_OR_RETURN(Communicator * group, ExchangeGroup(step));
    absl::flat_hash_map<int, int> group_ranks;
    for (int rank : group->members()) {
      group_ranks.emplace(rank, static_cast<int>(group_ranks.size()));
    }
    const Region had = step.before.RegionOf(comms_.rank());
    const Region has = step.after.RegionOf(comms_.rank());
    const internal::RankExchange parts =
        internal::ExchangeOf(step, comms_.rank());
    for (const internal::Box& box : parts.kept) {
      TESSERA_RETURN_IF_ERROR(Copy(internal::PartOf(out, has, box),
                                   internal::PartOf(value_, had, box)));
    }
    return group->SendRecv(TransfersOf(parts.sends, value_, had, group_ranks),
                           TransfersOf(parts.receives, out, has, group_ranks));
  }

  // One group per set of axes, in whichever order a step names them.
  absl::StatusOr<Communicator*> ExchangeGroup(const Step& step) {
    if (step.before.mesh() != step.after.mesh()) {
      return comms_.GetUnion(step.before.mesh(), step.after.mesh(), stream_);
    }
    MeshCoords axes(step.axes.begin(), step.axes.end());
    absl::c_sort(axes);
    return comms_.Get(step.before.mesh(), axes, stream_);
  }

  absl::Status Fill(const Step& step, const TensorView& out) {
    const int axis = step.axes.front();
    const ReduceOp op = step.after.placement(axis).op();
    const bool was_shard = step.before.placement(axis).is_shard();
    const bool keeps = AllKeepTheValue(op) || CoordinateAlong(step) == 0;
    if (!was_shard && keeps) return Copy(out, value_);
    TESSERA_RETURN_IF_ERROR(
        stream_.device().kernels().Fill(stream_, out, IdentityOf(op)));
    return was_shard ? Copy(OwnPiece(step, out), value_) : absl::OkStatus();
  }

  absl::Status Scale(const Step& step, const TensorView& out) {
    const int axis = step.axes.front();
    const double size = step.before.mesh().axis(axis).size;
    const bool to_avg = step.after.placement(axis).op() == ReduceOp::kAvg;
    TESSERA_RETURN_IF_ERROR(Copy(out, value_));
    return stream_.device().kernels().Scale(stream_, out,
                                            to_avg ? size : 1.0 / size);
  }

  // The piece of `whole` that is this rank's where the step's axis shards.
  TensorView OwnPiece(const Step& step, const TensorView& whole) const {
    const int axis = step.axes.front();
    const Placement& before = step.before.placement(axis);
    const int dim =
        before.is_shard() ? before.dim() : step.after.placement(axis).dim();
    return whole.Slice(dim, CeilSplit(whole.shape().extent(dim),
                                      step.before.mesh().axis(axis).size,
                                      CoordinateAlong(step)));
  }

  // This rank's coordinate along the step's axis.
  int CoordinateAlong(const Step& step) const {
    return (*step.before.mesh().CoordsOf(comms_.rank()))[step.axes.front()];
  }

  absl::Status Copy(const TensorView& out, const TensorView& in) {
    if (out.data() == in.data()) return absl::OkStatus();  // in place
    return stream_.device().kernels().Copy(stream_, out, in);
  }

  const TensorView target_;
  CommSet& comms_;
  Stream& stream_;
  TensorView value_;  // where the value lies between two steps
  Buffer workspace_;  // what it lies in, where that is workspace
};

}  // namespace

absl::Status Execute(const Plan& plan, const TensorView& source,
                     const TensorView& target, CommSet& comms, Stream& stream) {
  const int rank = comms.rank();
  TESSERA_RETURN_IF_ERROR(CheckSteps(plan));
  TESSERA_RETURN_IF_ERROR(CheckView("source", source, plan.source(), rank));
  TESSERA_RETURN_IF_ERROR(CheckView("target", target, plan.target(), rank));
  return PlanRun(source, target, comms, stream).Run(plan);
}

}  // namespace tessera
