#ifndef TESSERA_DBUFFER_DBUFFER_STATE_H_
#define TESSERA_DBUFFER_DBUFFER_STATE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/dbuffer/buffer_placement.h"
#include "tessera/device/device.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::internal {

// What a DBuffer is at the moment; its tensors look at it, too.
struct DBufferState {
  std::shared_ptr<const BufferGroup> group;
  BufferPlacements placements = {};
  DType dtype = DType::kF32;
  int rank = 0;
  Interval capacity = {};  // of the flat layout: what the memory covers
  Interval range = {};     // and what it holds now, inside it
  void* memory = nullptr;  // null while it is released
  Buffer storage = {};     // empty where the memory is lent

  // A stretch of the flat layout. REQUIRES: it is inside the capacity.
  TensorView View(Interval stretch) const;
  // What this rank holds of tensor i: inside the range, possibly empty.
  Interval StretchOf(int i) const;
  // The same, counted from the begin of the tensor; [extent, extent) where it
  // is nothing, as regions have it.
  Interval HeldOf(int i) const;

  absl::Status Fill(Interval stretch, double value, Stream& stream) const;
  // Zeros in what of the range belongs to no tensor of this rank.
  absl::Status FillPadding(Stream& stream) const;
};

}  // namespace tessera::internal

#endif  // TESSERA_DBUFFER_DBUFFER_STATE_H_
