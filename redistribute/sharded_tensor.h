#ifndef TESSERA_REDISTRIBUTE_SHARDED_TENSOR_H_
#define TESSERA_REDISTRIBUTE_SHARDED_TENSOR_H_

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/device.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// A tensor over a mesh as one rank has it: the layout, and this rank's piece,
// owned or borrowed. Move-only. LIFETIME: the destructor frees owned memory at
// once; where a stream still uses it, call ResetAfter first.
class ShardedTensor {
 public:
  // Memory for the piece of `rank`, uninitialised, owned.
  static absl::StatusOr<ShardedTensor> Allocate(
      Layout layout, int rank, Device& device,
      absl::string_view tag = "sharded_tensor");

  // The piece of `rank` lies in `local`, which the caller keeps alive.
  // ERRORS: InvalidArgument unless local.meta() == layout.LocalMeta(rank).
  static absl::StatusOr<ShardedTensor> Borrow(Layout layout, int rank,
                                              const TensorView& local);

  const Layout& layout() const { return layout_; }
  const TensorView& local() const { return local_; }
  bool owned() const { return !storage_.empty(); }

  // Frees owned memory once all that `stream` has been given so far is done.
  void ResetAfter(Stream& stream) { storage_.ResetAfter(stream); }

 private:
  ShardedTensor(Layout layout, TensorView local, Buffer storage)
      : layout_(std::move(layout)),
        local_(std::move(local)),
        storage_(std::move(storage)) {}

  Layout layout_;
  TensorView local_;
  Buffer storage_;
};

// Plans and executes on `stream`, into a new tensor on the stream's device.
// COLLECTIVE over the mesh. ERRORS: those of MakePlan and Execute.
absl::StatusOr<ShardedTensor> Redistribute(const ShardedTensor& source,
                                           const Layout& target,
                                           const Topology& topology,
                                           CommSet& comms, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_SHARDED_TENSOR_H_
