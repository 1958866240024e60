#include "tessera/dbuffer/dbuffer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/dbuffer/conversion.h"

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

absl::Status CheckRank(const CommSet& comms, int rank) {
  if (comms.rank() == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dbuffer: want communicators of rank ", rank,
                   ", found those of rank ", comms.rank()));
}

absl::Status CheckLentMemory(const void* memory, int64_t bytes, int64_t wanted,
                             absl::string_view what) {
  if (memory == nullptr || bytes < wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: want ", wanted, " bytes of memory for ", what, ", found ",
        memory == nullptr ? "none" : absl::StrCat(bytes)));
  }
  if (reinterpret_cast<uintptr_t>(memory) % kAlignBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: want memory aligned to ", kAlignBytes, " bytes, found ",
        absl::Hex(reinterpret_cast<uintptr_t>(memory))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DBuffer> DBuffer::Allocate(
    std::shared_ptr<const BufferGroup> group, BufferPlacements placements,
    DType dtype, int rank, Device& device, absl::string_view tag,
    Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(
      DBuffer buffer,
      Described(std::move(group), std::move(placements), dtype, rank));
  TESSERA_RETURN_IF_ERROR(buffer.Restore(device, tag, stream));
  return buffer;
}

absl::StatusOr<DBuffer> DBuffer::Wrap(std::shared_ptr<const BufferGroup> group,
                                      BufferPlacements placements, DType dtype,
                                      int rank, void* memory, int64_t bytes) {
  TESSERA_ASSIGN_OR_RETURN(
      DBuffer buffer,
      Described(std::move(group), std::move(placements), dtype, rank));
  TESSERA_RETURN_IF_ERROR(buffer.Restore(memory, bytes));
  return buffer;
}

absl::StatusOr<DBuffer> DBuffer::Described(
    std::shared_ptr<const BufferGroup> group, BufferPlacements placements,
    DType dtype, int rank) {
  TESSERA_ASSIGN_OR_RETURN(const Interval range,
                           CheckedRange(*group, placements, dtype, rank));
  auto state = std::make_shared<internal::DBufferState>();
  state->group = std::move(group);
  state->placements = std::move(placements);
  state->dtype = dtype;
  state->rank = rank;
  state->capacity = range;
  state->range = range;
  return DBuffer(std::move(state));
}

int64_t DBuffer::BytesFor(const BufferGroup& group,
                          absl::Span<const BufferPlacement> placements,
                          DType dtype) {
  return group.RangeSize(placements) * SizeOf(dtype);
}

int64_t DBuffer::CapacityBytes() const {
  return capacity().size() * SizeOf(dtype());
}

TensorView DBuffer::local() const { return state_->View(state_->range); }

DBufferTensor DBuffer::Tensor(int i) const {
  return DBufferTensor(state_->group, state_, i);
}

absl::StatusOr<Layout> DBuffer::TensorLayout(int i) const {
  return group().TensorLayout(i, dtype(), placements());
}

TensorView DBuffer::TensorPiece(int i) const {
  return state_->View(state_->StretchOf(i));
}

TensorView DBuffer::WholeTensor(int i) const {
  const Shape shape = group().tensor(i).layout.RegionOf(rank()).LocalShape();
  return TensorView(TensorPiece(i).data(),
                    TensorMeta::Create(dtype(), shape).value());
}

absl::Status DBuffer::CheckMemory() const {
  if (has_memory()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("dbuffer: the memory on rank ", rank(),
                   " is released, want it restored"));
}

absl::Status DBuffer::CheckLikeTarget(const DBuffer& target) const {
  if (target.state_->group != state_->group) {
    return absl::InvalidArgumentError(
        "dbuffer: want a target of the same group, found another group's");
  }
  if (target.rank() != rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want a target on rank ", rank(), ", found rank ",
                     target.rank()));
  }
  TESSERA_RETURN_IF_ERROR(CheckMemory());
  return target.CheckMemory();
}

absl::Status DBuffer::CheckFits(absl::Span<const BufferPlacement> placements,
                                Interval range) const {
  if (Intersect(range, capacity()) == range) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "dbuffer: ", BufferPlacementsToString(placements), " on rank ", rank(),
      " wants ", range.ToString(), " of the flat layout, found memory for ",
      capacity().ToString()));
}

absl::Status DBuffer::ConvertTo(BufferPlacements target, CommSet& comms,
                                Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckPlacements(group(), target, dtype()));
  TESSERA_RETURN_IF_ERROR(CheckRank(comms, rank()));
  TESSERA_RETURN_IF_ERROR(CheckMemory());
  TESSERA_ASSIGN_OR_RETURN(const Interval wanted,
                           group().RangeOf(target, rank()));
  TESSERA_RETURN_IF_ERROR(CheckFits(target, wanted));
  return internal::Convert(local(), target, comms, stream, *state_);
}

absl::Status DBuffer::CopyTo(DBuffer& target, CommSet& comms,
                             Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(CheckLikeTarget(target));
  if (target.dtype() != dtype()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want a target in ", DTypeName(dtype()),
                     ", found ", DTypeName(target.dtype())));
  }
  TESSERA_RETURN_IF_ERROR(CheckRank(comms, rank()));
  // On the way the target is what the content is; in the end, and after an
  // error, what it was.
  internal::DBufferState& at = *target.state_;
  const BufferPlacements wanted = at.placements;
  const Interval range = at.range;
  at.placements = state_->placements;
  at.range = state_->range;
  const absl::Status status =
      internal::Convert(local(), wanted, comms, stream, at);
  at.placements = wanted;
  at.range = range;
  return status;
}

absl::StatusOr<DBuffer> DBuffer::Copy(BufferPlacements target,
                                      absl::string_view tag, CommSet& comms,
                                      Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(
      DBuffer copy,
      Described(state_->group, std::move(target), dtype(), rank()));
  TESSERA_RETURN_IF_ERROR(copy.AllocateMemory(stream.device(), tag, stream));
  const absl::Status done = CopyTo(copy, comms, stream);
  if (!done.ok()) {
    copy.Release(stream);  // which may still write to it
    return done;
  }
  return copy;
}

absl::Status DBuffer::CastTo(DBuffer& target, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(CheckLikeTarget(target));
  for (int axis : group().axes()) {
    const BufferPlacement& from = group().PlacementOf(placements(), axis);
    const BufferPlacement& to = group().PlacementOf(target.placements(), axis);
    if (from == to || (from.is_replicate() && to.is_flat())) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: a cast communicates nothing, found ", from.ToString(), " to ",
        to.ToString(), " along axis '", group().mesh().axis(axis).name, "'"));
  }
  return stream.device().kernels().Cast(stream, target.local(),
                                        state_->View(target.range()));
}

absl::Status DBuffer::Declare(BufferPlacements placements) {
  TESSERA_ASSIGN_OR_RETURN(const Interval range,
                           CheckedRange(group(), placements, dtype(), rank()));
  TESSERA_RETURN_IF_ERROR(CheckFits(placements, range));
  state_->placements = std::move(placements);
  state_->range = range;
  return absl::OkStatus();
}

absl::Status DBuffer::FillZero(Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckMemory());
  return state_->Fill(range(), 0.0, stream);
}

absl::Status DBuffer::FillPadding(Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckMemory());
  return state_->FillPadding(stream);
}

void DBuffer::Release(Stream& stream) {
  state_->storage.ResetAfter(stream);
  state_->memory = nullptr;
}

absl::Status DBuffer::CheckReleased() const {
  if (!has_memory()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "dbuffer: there is memory on rank ", rank(), ", want it released"));
}

absl::Status DBuffer::AllocateMemory(Device& device, absl::string_view tag,
                                     Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(state_->storage,
                           device.Allocate(CapacityBytes(), tag, &stream));
  state_->memory = state_->storage.data();
  return absl::OkStatus();
}

absl::Status DBuffer::Restore(Device& device, absl::string_view tag,
                              Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckReleased());
  TESSERA_RETURN_IF_ERROR(AllocateMemory(device, tag, stream));
  const absl::Status filled = state_->Fill(capacity(), 0.0, stream);
  if (!filled.ok()) Release(stream);
  return filled;
}

absl::Status DBuffer::Restore(void* memory, int64_t bytes) {
  TESSERA_RETURN_IF_ERROR(CheckReleased());
  TESSERA_RETURN_IF_ERROR(CheckLentMemory(
      memory, bytes, CapacityBytes(), BufferPlacementsToString(placements())));
  state_->memory = memory;
  return absl::OkStatus();
}

}  // namespace tessera
