#include "tessera/dbuffer/conversion.h"

#include <algorithm>
#include <utility>

#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

bool IsScale(const BufferPlacement& from, const BufferPlacement& to) {
  const auto adds = [](const BufferPlacement& p) {
    return p.is_partial() &&
           (p.op() == ReduceOp::kSum || p.op() == ReduceOp::kAvg);
  };
  return adds(from) && adds(to);
}

bool Communicates(const AxisChange& change) {
  return change.from.is_partial()
             ? !change.to.is_partial()
             : change.from.is_flat() && change.to.is_replicate();
}

// One conversion under way.
class Converter {
 public:
  Converter(const TensorView& held, CommSet& comms, Stream& stream,
            DBufferState& at)
      : comms_(comms), stream_(stream), at_(at), held_(held) {}
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;
  ~Converter() { workspace_.ResetAfter(stream_); }

  absl::Status Apply(const AxisChange& change) {
    BufferPlacements next = at_.placements;
    next[at_.group->IndexOf(change.axis)] = change.to;
    TESSERA_ASSIGN_OR_RETURN(const Interval range,
                             at_.group->RangeOf(next, at_.rank));
    if (Communicates(change)) {
      TESSERA_ASSIGN_OR_RETURN(const TensorView result, RoomFor(range));
      TESSERA_RETURN_IF_ERROR(Communicate(change, result));
      held_ = result;
    } else if (change.to.is_flat()) {
      held_ = PartOfHeld(range);
    } else {
      TESSERA_RETURN_IF_ERROR(BringHome());
      TESSERA_RETURN_IF_ERROR(ChangeHere(change, range));
    }
    at_.placements = std::move(next);
    at_.range = range;
    return absl::OkStatus();
  }

  // What is still elsewhere is copied.
  absl::Status BringHome() {
    const TensorView home = at_.View(at_.range);
    if (held_.data() == home.data()) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(
        stream_.device().kernels().Copy(stream_, home, held_));
    held_ = home;
    return absl::OkStatus();
  }

 private:
  // Memory for the result of a collective: the buffer's own, where it has room.
  absl::StatusOr<TensorView> RoomFor(Interval range) {
    if (Intersect(range, at_.capacity) == range) return at_.View(range);
    if (!workspace_.empty()) return PartOfHeld(range);
    TESSERA_ASSIGN_OR_RETURN(
        workspace_, stream_.device().Allocate(range.size() * SizeOf(at_.dtype),
                                              "workspace", &stream_));
    return TensorView::Flat(workspace_.data(), at_.dtype, range.size());
  }

  TensorView PartOfHeld(Interval range) const {
    const int64_t origin = at_.range.begin;
    return held_.Slice(0, {range.begin - origin, range.end - origin});
  }

  absl::Status Communicate(const AxisChange& change, const TensorView& result) {
    TESSERA_ASSIGN_OR_RETURN(
        Communicator* const communicator,
        comms_.Get(at_.group->mesh(), {change.axis}, stream_));
    if (change.from.is_flat()) return communicator->AllGather(held_, result);
    const ReduceOp op = change.from.op();
    return change.to.is_flat() ? communicator->ReduceScatter(op, held_, result)
                               : communicator->AllReduce(op, held_, result);
  }

  // To a Partial placement, in the buffer's own memory.
  absl::Status ChangeHere(const AxisChange& change, Interval range) {
    constexpr double kZero = -0.0;  // 0.0 + -0.0 is 0.0, x + -0.0 is x
    const auto size =
        static_cast<double>(at_.group->mesh().axis(change.axis).size);
    if (change.from.is_partial()) {
      const double factor =
          change.to.op() == ReduceOp::kAvg ? size : 1.0 / size;
      return stream_.device().kernels().Scale(stream_, held_, factor);
    }
    if (change.from.is_flat()) {
      TESSERA_RETURN_IF_ERROR(
          at_.Fill({range.begin, at_.range.begin}, kZero, stream_));
      TESSERA_RETURN_IF_ERROR(
          at_.Fill({at_.range.end, range.end}, kZero, stream_));
      held_ = at_.View(range);
      return absl::OkStatus();
    }
    TESSERA_ASSIGN_OR_RETURN(const MeshCoords coords,
                             at_.group->mesh().RequireCoordsOf(at_.rank));
    if (coords[change.axis] == 0) return absl::OkStatus();
    if (change.to.op() == ReduceOp::kSum) {
      return at_.Fill(range, kZero, stream_);
    }
    if (change.to.op() == ReduceOp::kProduct) {
      TESSERA_RETURN_IF_ERROR(at_.Fill(range, 1.0, stream_));
      return at_.FillPadding(stream_);
    }
    return absl::OkStatus();
  }

  CommSet& comms_;
  Stream& stream_;
  DBufferState& at_;
  TensorView held_;   // where the content is, of at_'s range
  Buffer workspace_;  // empty where none is needed
};

}  // namespace

std::vector<AxisChange> ChangesBetween(
    const BufferGroup& group, absl::Span<const BufferPlacement> source,
    absl::Span<const BufferPlacement> target) {
  const BufferPlacement whole = BufferPlacement::Replicate();
  const absl::Span<const int> order = group.cut_order();
  std::vector<AxisChange> changes;
  // Visits the axes of which `step` says what they become.
  const auto add = [&](int axis, auto&& step) {
    const BufferPlacement& from = group.PlacementOf(source, axis);
    const BufferPlacement& to = group.PlacementOf(target, axis);
    if (from == to) return;
    if (const AxisChange change = step(axis, from, to);
        change.from != change.to) {
      changes.push_back(change);
    }
  };
  const auto cut = [&](int axis, auto& from, auto& to) {
    return AxisChange{axis, from, to.is_flat() ? to : from};
  };
  const auto reduce = [&](int axis, auto& from, auto& to) {
    if (!from.is_partial() || to.is_flat()) return AxisChange{axis, from, from};
    return AxisChange{axis, from, IsScale(from, to) ? to : whole};
  };
  const auto grow = [&](int axis, auto& from, auto& to) {
    if (!from.is_flat()) return AxisChange{axis, from, from};
    const bool is_sum = to == BufferPlacement::Partial(ReduceOp::kSum);
    return AxisChange{axis, from, is_sum ? to : whole};
  };
  const auto split = [&](int axis, auto& from, auto& to) {
    const bool done = IsScale(from, to) ||
                      (from.is_flat() && to == BufferPlacement::Partial());
    return AxisChange{axis, whole, to.is_partial() && !done ? to : whole};
  };
  for (int axis : order) add(axis, cut);
  for (int axis : order) add(axis, reduce);
  for (auto it = order.rbegin(); it != order.rend(); ++it) add(*it, grow);
  for (int axis : order) add(axis, split);
  return changes;
}

absl::Status Convert(const TensorView& held,
                     absl::Span<const BufferPlacement> target, CommSet& comms,
                     Stream& stream, DBufferState& at) {
  Converter converter(held, comms, stream, at);
  for (const AxisChange& change :
       ChangesBetween(*at.group, at.placements, target)) {
    TESSERA_RETURN_IF_ERROR(converter.Apply(change));
  }
  return converter.BringHome();
}

}  // namespace tessera::internal
