#ifndef TESSERA_DBUFFER_BUFFER_GROUP_H_
#define TESSERA_DBUFFER_BUFFER_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/dbuffer/buffer_placement.h"
#include "tessera/dbuffer/flat_layout.h"
#include "tessera/dbuffer/granularity.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/dtype.h"

namespace tessera {

// What all flat buffers of one group of tensors share: the mesh, which of its
// axes are data-parallel and in which order they cut, and one flat layout, so
// that a tensor has the same offset in every buffer, whatever its dtype and
// placements. Immutable; shared by pointer; thread-safe.
//
// Each tensor comes with a layout that says what the *other* mesh axes do with
// it (tensor parallelism and the like); along the data-parallel axes it is R.
// The flat layout is planned from each tensor's largest local shape over the
// other axes, so that offsets and sizes are the same on every rank; a rank
// with a shorter piece has padding behind it.
class BufferGroup {
 public:
  struct Tensor {
    std::string name;
    Layout layout;
    // Of the largest local shape over the other axes.
    Granularity granularity = {};
  };

  struct Options {
    // The data-parallel mesh axes, by index, in the caller's order (outer
    // before inner). BufferPlacements are in this order.
    std::vector<int> axes = {};
    // The order in which Flat axes cut, first cut first: a permutation of
    // `axes`. Empty: the last of `axes` cuts first.
    std::vector<int> cut_order = {};
    // How many axes of the cut order are Flat in some buffer of the group. The
    // flat layout has as many parts as these axes have coordinates.
    int num_flat_axes = 0;
    // The narrowest dtype that any buffer of the group uses.
    DType narrowest = DType::kF32;
  };

  // ERRORS: InvalidArgument for axes outside the mesh or repeated, a cut order
  // that is not a permutation, num_flat_axes out of range; for a tensor, by
  // name, that is on another mesh, has a dtype unlike the first one's, is not
  // R along a data-parallel axis, is Partial or ragged along another, or has
  // granules that differ between ranks, as another axis cuts a dim that they
  // span in unequal parts; and those of FlatLayout.
  static absl::StatusOr<std::shared_ptr<const BufferGroup>> Create(
      DeviceMesh mesh, std::vector<Tensor> tensors, Options options);

  const DeviceMesh& mesh() const { return mesh_; }
  absl::Span<const int> axes() const { return options_.axes; }
  absl::Span<const int> cut_order() const { return options_.cut_order; }
  DType narrowest() const { return options_.narrowest; }
  const FlatLayout& flat_layout() const { return flat_layout_; }
  int num_tensors() const { return static_cast<int>(tensors_.size()); }
  const Tensor& tensor(int i) const { return tensors_[i]; }

  // The place of mesh axis `axis` in axes(), and its placement in a list that
  // is in their order. REQUIRES: axis is one of axes().
  int IndexOf(int axis) const;
  const BufferPlacement& PlacementOf(
      absl::Span<const BufferPlacement> placements, int axis) const;

  // OK if there is one placement per axis, the Flat ones are a prefix of the
  // cut order within its first num_flat_axes, and the Partial ops may be mixed
  // (as in Layout). ERRORS: InvalidArgument naming the axis.
  absl::Status Validate(absl::Span<const BufferPlacement> placements) const;

  // How many axes are Flat: the first so many of cut_order().
  // REQUIRES: Validate(placements) is OK, here and below.
  int NumFlat(absl::Span<const BufferPlacement> placements) const;

  // How many elements of the flat layout each rank holds.
  int64_t RangeSize(absl::Span<const BufferPlacement> placements) const;

  // The elements of the flat layout that `rank` holds: the whole, cut in equal
  // parts by the Flat axes in cut order. ERRORS: InvalidArgument for a rank
  // outside the mesh.
  absl::StatusOr<Interval> RangeOf(absl::Span<const BufferPlacement> placements,
                                   int rank) const;

  // Where tensor i is, as a layout over the whole mesh in `dtype`: R, P(op) or
  // an affine ragged cut along the data-parallel axes, and the tensor's own
  // placements along the others.
  absl::StatusOr<Layout> TensorLayout(
      int i, DType dtype, absl::Span<const BufferPlacement> placements) const;

 private:
  BufferGroup(DeviceMesh mesh, std::vector<Tensor> tensors, Options options,
              FlatLayout flat_layout)
      : mesh_(std::move(mesh)),
        tensors_(std::move(tensors)),
        options_(std::move(options)),
        flat_layout_(std::move(flat_layout)) {}

  const DeviceMesh mesh_;
  const std::vector<Tensor> tensors_;
  const Options options_;
  const FlatLayout flat_layout_;
};

}  // namespace tessera

#endif  // TESSERA_DBUFFER_BUFFER_GROUP_H_
