#ifndef TESSERA_DBUFFER_DBUFFER_H_
#define TESSERA_DBUFFER_DBUFFER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/comm_set.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/dbuffer/buffer_placement.h"
#include "tessera/dbuffer/dbuffer_state.h"
#include "tessera/dbuffer/dbuffer_tensor.h"
#include "tessera/device/device.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// The tensors of a group in one flat local buffer, as one rank has them.
//
//   TESSERA_ASSIGN_OR_RETURN(auto group,
//                            BufferGroup::Create(mesh, tensors, options));
//   TESSERA_ASSIGN_OR_RETURN(BufferPlacements partial,
//                            ParseBufferPlacements("[P(sum), P(sum)]"));
//   TESSERA_ASSIGN_OR_RETURN(
//       DBuffer grads, DBuffer::Allocate(group, partial, DType::kF32, rank,
//                                        device, "grads", stream));
//   grads.ConvertTo(*ParseBufferPlacements("[P(sum), Flat]"), comms, stream);
//
// The memory covers a stretch of the group's flat layout, capacity(); the
// placements say what it holds now, and range(), always within the capacity,
// which part of the flat layout that is. So a gradient buffer is reduced in
// place into a part of its own memory, and grows back without moving.
//
// Invariants: 1. range() is what the group's RangeOf gives for placements().
// 2. capacity() contains range(). 3. Padding inside range() is zero (of either
// sign), as long as writers write through tensor views only.
//
// Collectives run on the flat memory itself, nothing is packed. Move-only; one
// call at a time. LIFETIME: the device, and memory that was lent, outlive it.
//
// ERRORS: FailedPrecondition, from what needs memory, while that is released.
class DBuffer {
 public:
  // Memory for what `placements` says `rank` holds, filled with zeros on
  // `stream`. ERRORS: InvalidArgument from BufferGroup::Validate, for a dtype
  // narrower than the group's narrowest, for P(avg) of integers or a rank
  // outside the mesh; ResourceExhausted.
  static absl::StatusOr<DBuffer> Allocate(
      std::shared_ptr<const BufferGroup> group, BufferPlacements placements,
      DType dtype, int rank, Device& device, absl::string_view tag,
      Stream& stream);

  // The same in memory of the caller's, aligned to 16 bytes, at least
  // BytesFor(...) long. Not filled. ERRORS: as above, and InvalidArgument for
  // memory that is shorter or less aligned.
  static absl::StatusOr<DBuffer> Wrap(std::shared_ptr<const BufferGroup> group,
                                      BufferPlacements placements, DType dtype,
                                      int rank, void* memory, int64_t bytes);

  // Bytes that `rank` needs for these placements: the same for every rank.
  static int64_t BytesFor(const BufferGroup& group,
                          absl::Span<const BufferPlacement> placements,
                          DType dtype);

  const BufferGroup& group() const { return *state_->group; }
  DType dtype() const { return state_->dtype; }
  absl::Span<const BufferPlacement> placements() const {
    return state_->placements;
  }
  int rank() const { return state_->rank; }
  Interval capacity() const { return state_->capacity; }
  Interval range() const { return state_->range; }

  // What is held now, flat: range().size() elements, without memory while that
  // is released.
  TensorView local() const;

  // Tensor i, for as long as the buffer lives and whatever becomes of it.
  DBufferTensor Tensor(int i) const;
  // What Tensor(i) says now: its layout; its memory, flat and possibly empty.
  absl::StatusOr<Layout> TensorLayout(int i) const;
  TensorView TensorPiece(int i) const;
  // Tensor i with its dims. REQUIRES: no axis is Flat.
  TensorView WholeTensor(int i) const;

  // In place: makes the placements `target`, which may be any that the group
  // allows. One mesh axis at a time, never flattened:
  //
  //   1. what becomes Flat is reduced (from P) or cut (from R), in cut order;
  //   2. what is P and becomes R or another P is reduced, in cut order; from
  //      P(sum) to P(avg) and back it is scaled instead;
  //   3. what was Flat is gathered, in reverse cut order; to become P(sum) it
  //      is filled around with identities (-0.0) instead;
  //   4. what is R by now and becomes P(op) is left as it is at coordinate 0,
  //      and elsewhere filled with identities for sum and product, left as it
  //      is for the others.
  //
  // So bits depend on nothing but this order.
  // COLLECTIVE over every axis that is reduced or gathered.
  // ERRORS: InvalidArgument, with nothing changed, for placements the group
  // rejects, a target range outside capacity(), P(avg) of integers, or
  // communicators of another rank; those of Communicator and Stream, with the
  // content lost.
  absl::Status ConvertTo(BufferPlacements target, CommSet& comms,
                         Stream& stream);

  // Gives `target` this buffer's content in target's placements and memory;
  // this buffer stays as it is. Same group, dtype and rank; the memories do
  // not overlap. The first collective sends straight from one memory into the
  // other; where there is none, what both hold is copied.
  // Order, COLLECTIVE and ERRORS as ConvertTo; it is the target's content that
  // an error may cost.
  // COST: where two or more axes go from P to Flat and the target has no room
  // for what the first one leaves, that much memory of the stream's device,
  // under the tag "workspace"; ResourceExhausted where there is none.
  absl::Status CopyTo(DBuffer& target, CommSet& comms, Stream& stream) const;

  // The same, into a new buffer on the stream's device.
  absl::StatusOr<DBuffer> Copy(BufferPlacements target, absl::string_view tag,
                               CommSet& comms, Stream& stream) const;

  // Gives `target` this buffer's content in target's dtype, as Kernels::Cast
  // does. Same group and rank; target's placements are this one's, but may be
  // Flat where this is R. ERRORS: InvalidArgument, naming the axis.
  absl::Status CastTo(DBuffer& target, Stream& stream) const;

  // Says that the memory holds `placements` now, without touching it: whoever
  // wrote it there says so. ERRORS: InvalidArgument as in ConvertTo.
  absl::Status Declare(BufferPlacements placements);

  // Zeros, padding included.
  absl::Status FillZero(Stream& stream);
  // Zeros in what belongs to no tensor of this rank.
  absl::Status FillPadding(Stream& stream);

  // Gives owned memory back, in the order of `stream`, or forgets what was
  // lent. Group, placements and capacity stay, and so do the objects that
  // Tensor gave. No effect where it is released.
  void Release(Stream& stream);
  bool has_memory() const { return state_->memory != nullptr; }
  // Memory for capacity() once more: new and filled with zeros; or of the
  // caller's, as in Wrap, with what is there.
  // ERRORS: FailedPrecondition where there is memory; as Allocate and Wrap.
  absl::Status Restore(Device& device, absl::string_view tag, Stream& stream);
  absl::Status Restore(void* memory, int64_t bytes);

 private:
  explicit DBuffer(std::shared_ptr<internal::DBufferState> state)
      : state_(std::move(state)) {}

  // A buffer that has no memory yet.
  static absl::StatusOr<DBuffer> Described(
      std::shared_ptr<const BufferGroup> group, BufferPlacements placements,
      DType dtype, int rank);
  absl::Status AllocateMemory(Device& device, absl::string_view tag,
                              Stream& stream);

  int64_t CapacityBytes() const;
  absl::Status CheckMemory() const;
  absl::Status CheckReleased() const;
  // OK if the memory covers `range`, which `placements` asks for.
  absl::Status CheckFits(absl::Span<const BufferPlacement> placements,
                         Interval range) const;
  absl::Status CheckLikeTarget(const DBuffer& target) const;

  // Shared with nobody, but watched by the tensors.
  std::shared_ptr<internal::DBufferState> state_;
};

}  // namespace tessera

#endif  // TESSERA_DBUFFER_DBUFFER_H_
