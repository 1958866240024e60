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
#include "tessera/device/device.h"
#include "tessera/redistribute/sharded_tensor.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// The tensors of a group in one flat local buffer, as one rank has them.
//
//   TESSERA_ASSIGN_OR_RETURN(auto group, BufferGroup::Create(mesh, tensors,
//   options)); TESSERA_ASSIGN_OR_RETURN(BufferPlacements partial,
//                    ParseBufferPlacements("[P(sum), P(sum)]"));
//   TESSERA_ASSIGN_OR_RETURN(DBuffer grads, DBuffer::Allocate(group, partial,
//       DType::kF32, rank, device, "grads", stream));
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

  const BufferGroup& group() const { return *group_; }
  DType dtype() const { return dtype_; }
  absl::Span<const BufferPlacement> placements() const { return placements_; }
  int rank() const { return rank_; }
  Interval capacity() const { return capacity_; }
  Interval range() const { return range_; }

  // What is held now, flat: range().size() elements.
  TensorView local() const;

  // This rank's part of tensor i, flat and possibly empty, and the layout that
  // it is the local piece of: TensorLayout(i).LocalMeta(rank) flattened.
  absl::StatusOr<Layout> TensorLayout(int i) const;
  TensorView TensorPiece(int i) const;
  // Both, as a borrowed sharded tensor; with its dims where no axis is Flat.
  absl::StatusOr<ShardedTensor> Tensor(int i) const;
  // Tensor i with its dims. REQUIRES: no axis is Flat.
  TensorView WholeTensor(int i) const;

  // In place: makes the placements `target`. What becomes Flat is reduced
  // (from P) or cut (from R) first, in cut order; then P becomes R, in cut
  // order; then what was Flat is gathered, or filled around with identities
  // (to P(sum)), in reverse cut order; R becomes P(sum) by keeping the value
  // at coordinate 0 and identities (-0.0) elsewhere. One mesh axis at a time,
  // never flattened, so bits depend on nothing but this order.
  // COLLECTIVE over every axis whose placement changes between P or Flat and
  // another by communication.
  // ERRORS: InvalidArgument, with nothing changed, for placements the group
  // rejects, a target range outside capacity(), a change between two ops or
  // from R or Flat to P(op) of another op than sum, or communicators of
  // another rank; those of Communicator and Stream, with the content lost.
  absl::Status ConvertTo(BufferPlacements target, CommSet& comms,
                         Stream& stream);

  // Gives `target` this buffer's content in target's placements and memory;
  // this buffer stays as it is. Same group, dtype and rank; the memories do
  // not overlap. A gather sends straight from one memory into the other; where
  // none comes first, what both hold is copied. From P only to what needs no
  // reduction: reduce in place first. Order, COLLECTIVE and ERRORS as
  // ConvertTo.
  absl::Status CopyTo(DBuffer& target, CommSet& comms, Stream& stream) const;

  // Says that the memory holds `placements` now, without touching it: whoever
  // wrote it there says so. ERRORS: InvalidArgument as in ConvertTo.
  absl::Status Declare(BufferPlacements placements);

  // Zeros, padding included.
  absl::Status FillZero(Stream& stream);
  // Zeros in what belongs to no tensor of this rank.
  absl::Status FillPadding(Stream& stream);

  // Frees owned memory in the order of `stream`; the buffer is then empty and
  // may only be destroyed or assigned.
  void ResetAfter(Stream& stream);

 private:
  // OK if the memory covers `range`, which `placements` asks for.
  absl::Status CheckFits(absl::Span<const BufferPlacement> placements,
                         Interval range) const;

  struct Change {
    int axis;
    BufferPlacement from;
    BufferPlacement to;
  };

  DBuffer(std::shared_ptr<const BufferGroup> group, BufferPlacements placements,
          DType dtype, int rank, Interval capacity, void* memory,
          Buffer storage);

  // A stretch of the flat layout. REQUIRES: it is inside capacity().
  TensorView View(Interval stretch) const;
  // The stretch that TensorPiece(i) views, inside range().
  Interval TensorStretch(int i) const;

  absl::Status CheckLikeTarget(const DBuffer& target) const;
  // The changes that lead to `target`, in ConvertTo's order.
  std::vector<Change> ChangesTo(absl::Span<const BufferPlacement> target) const;
  // Makes one change in this buffer's memory. `held` is what range() covers,
  // here or, for a gather, elsewhere.
  absl::Status Apply(const Change& change, const TensorView& held,
                     CommSet& comms, Stream& stream);
  absl::Status Communicate(const Change& change, const TensorView& send,
                           const TensorView& recv, CommSet& comms,
                           Stream& stream) const;
  // Makes range() the one part of a sum over next_range that is not identities.
  absl::Status FillIdentities(const Change& change, Interval next_range,
                              Stream& stream) const;
  absl::Status Fill(Interval stretch, double value, Stream& stream) const;

  std::shared_ptr<const BufferGroup> group_;
  BufferPlacements placements_;
  DType dtype_;
  int rank_;
  Interval capacity_;
  Interval range_;
  void* memory_;
  Buffer storage_;  // empty where the memory is lent
};

}  // namespace tessera

#endif  // TESSERA_DBUFFER_DBUFFER_H_
