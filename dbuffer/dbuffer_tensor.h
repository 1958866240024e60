#ifndef TESSERA_DBUFFER_DBUFFER_TENSOR_H_
#define TESSERA_DBUFFER_DBUFFER_TENSOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/sharded_tensor.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

namespace internal {
struct DBufferState;
}

// A tensor of a DBuffer as this rank has it: says what is there now, whatever
// the buffer was converted to, released or restored in between. A cheap handle;
// copies are alike. It may outlive the buffer, and then says so.
//
// ERRORS: FailedPrecondition, naming the tensor, once the buffer is gone, and
// from what needs memory while that is released.
// Thread-safety: as calls of the buffer.
class DBufferTensor {
 public:
  const std::string& name() const { return group_->tensor(index_).name; }

  // The layout over the whole mesh, in the buffer's dtype.
  absl::StatusOr<Layout> TensorLayout() const;

  // Which elements this rank holds: an interval of the row-major flattening of
  // its local box, which the mesh axes outside the group cut.
  absl::StatusOr<Interval> Held() const;

  // Their memory: with the dims of the box where they are whole rows along
  // dim 0, as at granularity row or where no axis is Flat; else flat.
  absl::StatusOr<TensorView> Local() const;

  // Layout and memory, ready to be redistributed.
  // LIFETIME: valid until the buffer is converted, released or destroyed.
  absl::StatusOr<ShardedTensor> Sharded() const;

 private:
  friend class DBuffer;
  DBufferTensor(std::shared_ptr<const BufferGroup> group,
                std::weak_ptr<const internal::DBufferState> buffer, int index)
      : group_(std::move(group)), buffer_(std::move(buffer)), index_(index) {}

  using StatePtr = std::shared_ptr<const internal::DBufferState>;
  absl::StatusOr<StatePtr> Buffer() const;
  absl::StatusOr<StatePtr> BufferWithMemory() const;

  std::shared_ptr<const BufferGroup> group_;
  std::weak_ptr<const internal::DBufferState> buffer_;
  int index_;
};

}  // namespace tessera

#endif  // TESSERA_DBUFFER_DBUFFER_TENSOR_H_
