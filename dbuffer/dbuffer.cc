#include "tessera/dbuffer/dbuffer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

constexpr int64_t kAlignBytes = 16;

absl::Status CheckPlacements(const BufferGroup& group,
                             absl::Span<const BufferPlacement> placements,
                             DType dtype) {
  TESSERA_RETURN_IF_ERROR(group.Validate(placements));
  // Layouts know which ops a dtype may have.
  return group.TensorLayout(0, dtype, placements).status();
}

// What `rank` holds, once all that a buffer is made of is checked.
absl::StatusOr<Interval> CheckedRange(
    const BufferGroup& group, absl::Span<const BufferPlacement> placements,
    DType dtype, int rank) {
  if (SizeOf(dtype) < SizeOf(group.narrowest())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: dtype ", DTypeName(dtype), " is narrower than ",
        DTypeName(group.narrowest()), ", the narrowest of the group"));
  }
  TESSERA_RETURN_IF_ERROR(CheckPlacements(group, placements, dtype));
  return group.RangeOf(placements, rank);
}

absl::Status CheckChanges(const BufferGroup& group,
                          absl::Span<const BufferPlacement> source,
                          absl::Span<const BufferPlacement> target) {
  for (int axis : group.axes()) {
    const BufferPlacement& from = group.PlacementOf(source, axis);
    const BufferPlacement& to = group.PlacementOf(target, axis);
    if (from == to || !to.is_partial()) continue;
    if (from.is_partial() || to.op() != ReduceOp::kSum) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dbuffer: axis '", group.mesh().axis(axis).name, "' cannot go from ",
          from.ToString(), " to ", to.ToString()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNoReduction(const BufferGroup& group,
                              absl::Span<const BufferPlacement> source,
                              absl::Span<const BufferPlacement> target) {
  for (int axis : group.axes()) {
    const BufferPlacement& from = group.PlacementOf(source, axis);
    const BufferPlacement& to = group.PlacementOf(target, axis);
    if (from.is_partial() && from != to) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dbuffer: a copy reduces nothing, found ", from.ToString(), " to ",
          to.ToString(), " along axis '", group.mesh().axis(axis).name,
          "': reduce in place first"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRank(const CommSet& comms, int rank) {
  if (comms.rank() == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dbuffer: want communicators of rank ", rank,
                   ", found those of rank ", comms.rank()));
}

// What of `interval` lies in `bounds`; where that is nothing, an empty
// interval in `bounds`.
Interval Clip(Interval interval, Interval bounds) {
  return {std::clamp(interval.begin, bounds.begin, bounds.end),
          std::clamp(interval.end, bounds.begin, bounds.end)};
}

}  // namespace

absl::StatusOr<DBuffer> DBuffer::Allocate(
    std::shared_ptr<const BufferGroup> group, BufferPlacements placements,
    DType dtype, int rank, Device& device, absl::string_view tag,
    Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const Interval range,
                           CheckedRange(*group, placements, dtype, rank));
  TESSERA_ASSIGN_OR_RETURN(
      Buffer storage,
      device.Allocate(BytesFor(*group, placements, dtype), tag));
  void* const memory = storage.data();
  DBuffer buffer(std::move(group), std::move(placements), dtype, rank, range,
                 memory, std::move(storage));
  TESSERA_RETURN_IF_ERROR(buffer.FillZero(stream));
  return buffer;
}

absl::StatusOr<DBuffer> DBuffer::Wrap(std::shared_ptr<const BufferGroup> group,
                                      BufferPlacements placements, DType dtype,
                                      int rank, void* memory, int64_t bytes) {
  TESSERA_ASSIGN_OR_RETURN(const Interval range,
                           CheckedRange(*group, placements, dtype, rank));
  const int64_t wanted = BytesFor(*group, placements, dtype);
  if (bytes < wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want ", wanted, " bytes of memory for ",
                     BufferPlacementsToString(placements), ", found ", bytes));
  }
  if (reinterpret_cast<uintptr_t>(memory) % kAlignBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: want memory aligned to ", kAlignBytes, " bytes, found ",
        absl::Hex(reinterpret_cast<uintptr_t>(memory))));
  }
  return DBuffer(std::move(group), std::move(placements), dtype, rank, range,
                 memory, Buffer());
}

DBuffer::DBuffer(std::shared_ptr<const BufferGroup> group,
                 BufferPlacements placements, DType dtype, int rank,
                 Interval capacity, void* memory, Buffer storage)
    : group_(std::move(group)),
      placements_(std::move(placements)),
      dtype_(dtype),
      rank_(rank),
      capacity_(capacity),
      range_(capacity),
      memory_(memory),
      storage_(std::move(storage)) {}

int64_t DBuffer::BytesFor(const BufferGroup& group,
                          absl::Span<const BufferPlacement> placements,
                          DType dtype) {
  return group.RangeSize(placements) * SizeOf(dtype);
}

TensorView DBuffer::local() const { return View(range_); }

TensorView DBuffer::View(Interval stretch) const {
  return TensorView::Flat(memory_, dtype_, capacity_.size())
      .Slice(0,
             {stretch.begin - capacity_.begin, stretch.end - capacity_.begin});
}

Interval DBuffer::TensorStretch(int i) const {
  const int64_t begin = group_->flat_layout().offset(i);
  const int64_t elements =
      group_->tensor(i).layout.RegionOf(rank_).num_elements();
  return Clip({begin, begin + elements}, range_);
}

absl::StatusOr<Layout> DBuffer::TensorLayout(int i) const {
  return group_->TensorLayout(i, dtype_, placements_);
}

TensorView DBuffer::TensorPiece(int i) const { return View(TensorStretch(i)); }

absl::StatusOr<ShardedTensor> DBuffer::Tensor(int i) const {
  TESSERA_ASSIGN_OR_RETURN(Layout layout, TensorLayout(i));
  const TensorView local(TensorPiece(i).data(), layout.LocalMeta(rank_));
  return ShardedTensor::Borrow(std::move(layout), rank_, local);
}

TensorView DBuffer::WholeTensor(int i) const {
  const Shape shape = group_->tensor(i).layout.RegionOf(rank_).LocalShape();
  return TensorView(TensorPiece(i).data(),
                    TensorMeta::Create(dtype_, shape).value());
}

absl::Status DBuffer::CheckLikeTarget(const DBuffer& target) const {
  if (target.group_ != group_) {
    return absl::InvalidArgumentError(
        "dbuffer: want a target of the same group, found another group's");
  }
  if (target.dtype_ != dtype_ || target.rank_ != rank_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: want a target in ", DTypeName(dtype_), " on rank ", rank_,
        ", found ", DTypeName(target.dtype_), " on rank ", target.rank_));
  }
  return absl::OkStatus();
}

std::vector<DBuffer::Change> DBuffer::ChangesTo(
    absl::Span<const BufferPlacement> target) const {
  std::vector<Change> changes;
  const auto add_if = [&](auto&& belongs, int axis) {
    const Change change{axis, group_->PlacementOf(placements_, axis),
                        group_->PlacementOf(target, axis)};
    if (change.from != change.to && belongs(change)) changes.push_back(change);
  };
  const auto cuts = [](const Change& c) { return c.to.is_flat(); };
  const auto reduces = [](const Change& c) {
    return c.from.is_partial() && c.to.is_replicate();
  };
  const auto grows = [](const Change& c) { return c.from.is_flat(); };
  const auto splits = [](const Change& c) {
    return c.from.is_replicate() && c.to.is_partial();
  };
  const absl::Span<const int> order = group_->cut_order();
  for (int axis : order) add_if(cuts, axis);
  for (int axis : order) add_if(reduces, axis);
  for (auto it = order.rbegin(); it != order.rend(); ++it) add_if(grows, *it);
  for (int axis : order) add_if(splits, axis);
  return changes;
}

absl::Status DBuffer::Apply(const Change& change, const TensorView& held,
                            CommSet& comms, Stream& stream) {
  BufferPlacements next = placements_;
  next[group_->IndexOf(change.axis)] = change.to;
  TESSERA_ASSIGN_OR_RETURN(const Interval next_range,
                           group_->RangeOf(next, rank_));
  if (change.to.is_partial()) {
    TESSERA_RETURN_IF_ERROR(FillIdentities(change, next_range, stream));
  } else if (!change.from.is_replicate()) {  // R to Flat only chooses a part
    TESSERA_RETURN_IF_ERROR(
        Communicate(change, held, View(next_range), comms, stream));
  }
  placements_ = std::move(next);
  range_ = next_range;
  return absl::OkStatus();
}

absl::Status DBuffer::Communicate(const Change& change, const TensorView& send,
                                  const TensorView& recv, CommSet& comms,
                                  Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(Communicator* const communicator,
                           comms.Get(group_->mesh(), {change.axis}, stream));
  if (change.from.is_flat()) return communicator->AllGather(send, recv);
  const ReduceOp op = change.from.op();
  if (change.to.is_flat()) return communicator->ReduceScatter(op, send, recv);
  return communicator->AllReduce(op, send, recv);
}

absl::Status DBuffer::FillIdentities(const Change& change, Interval next_range,
                                     Stream& stream) const {
  constexpr double kIdentity = -0.0;  // 0.0 + -0.0 is 0.0, x + -0.0 is x
  if (change.from.is_flat()) {
    TESSERA_RETURN_IF_ERROR(
        Fill({next_range.begin, range_.begin}, kIdentity, stream));
    return Fill({range_.end, next_range.end}, kIdentity, stream);
  }
  TESSERA_ASSIGN_OR_RETURN(const MeshCoords coords,
                           group_->mesh().RequireCoordsOf(rank_));
  if (coords[change.axis] == 0) return absl::OkStatus();
  return Fill(range_, kIdentity, stream);
}

absl::Status DBuffer::CheckFits(absl::Span<const BufferPlacement> placements,
                                Interval range) const {
  if (Clip(range, capacity_) == range) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "dbuffer: ", BufferPlacementsToString(placements), " on rank ", rank_,
      " wants ", range.ToString(), " of the flat layout, found memory for ",
      capacity_.ToString()));
}

absl::Status DBuffer::ConvertTo(BufferPlacements target, CommSet& comms,
                                Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckPlacements(*group_, target, dtype_));
  TESSERA_RETURN_IF_ERROR(CheckChanges(*group_, placements_, target));
  TESSERA_RETURN_IF_ERROR(CheckRank(comms, rank_));
  TESSERA_ASSIGN_OR_RETURN(const Interval wanted,
                           group_->RangeOf(target, rank_));
  TESSERA_RETURN_IF_ERROR(CheckFits(target, wanted));
  for (const Change& change : ChangesTo(target)) {
    TESSERA_RETURN_IF_ERROR(Apply(change, local(), comms, stream));
  }
  return absl::OkStatus();
}

absl::Status DBuffer::CopyTo(DBuffer& target, CommSet& comms,
                             Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(CheckLikeTarget(target));
  TESSERA_RETURN_IF_ERROR(
      CheckChanges(*group_, placements_, target.placements_));
  TESSERA_RETURN_IF_ERROR(
      CheckNoReduction(*group_, placements_, target.placements_));
  TESSERA_RETURN_IF_ERROR(CheckRank(comms, rank_));
  const std::vector<Change> changes = ChangesTo(target.placements_);
  auto change = changes.begin();
  // Becomes what target is, in target's memory, step by step. Its range is
  // inside that memory once the cuts are made.
  DBuffer work(group_, placements_, dtype_, rank_, target.capacity_,
               target.memory_, Buffer());
  work.range_ = range_;
  for (; change != changes.end() && change->to.is_flat(); ++change) {
    TESSERA_RETURN_IF_ERROR(work.Apply(*change, local(), comms, stream));
  }
  if (change != changes.end() && change->from.is_flat() &&
      change->to.is_replicate()) {
    TESSERA_RETURN_IF_ERROR(work.Apply(*change++, local(), comms, stream));
  } else {
    TESSERA_RETURN_IF_ERROR(stream.device().kernels().Copy(stream, work.local(),
                                                           View(work.range_)));
  }
  for (; change != changes.end(); ++change) {
    TESSERA_RETURN_IF_ERROR(work.Apply(*change, work.local(), comms, stream));
  }
  return absl::OkStatus();
}

absl::Status DBuffer::Fill(Interval stretch, double value,
                           Stream& stream) const {
  if (stretch.empty()) return absl::OkStatus();
  return stream.device().kernels().Fill(stream, View(stretch), value);
}

absl::Status DBuffer::Declare(BufferPlacements placements) {
  TESSERA_ASSIGN_OR_RETURN(const Interval range,
                           CheckedRange(*group_, placements, dtype_, rank_));
  TESSERA_RETURN_IF_ERROR(CheckFits(placements, range));
  placements_ = std::move(placements);
  range_ = range;
  return absl::OkStatus();
}

absl::Status DBuffer::FillZero(Stream& stream) {
  return Fill(range_, 0.0, stream);
}

absl::Status DBuffer::FillPadding(Stream& stream) {
  int64_t begin = range_.begin;
  for (int i : group_->flat_layout().memory_order()) {
    const Interval stretch = TensorStretch(i);
    TESSERA_RETURN_IF_ERROR(Fill({begin, stretch.begin}, 0.0, stream));
    begin = stretch.end;
  }
  return Fill({begin, range_.end}, 0.0, stream);
}

void DBuffer::ResetAfter(Stream& stream) {
  storage_.ResetAfter(stream);
  memory_ = nullptr;
}

}  // namespace tessera
