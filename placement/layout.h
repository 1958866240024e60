#ifndef TESSERA_PLACEMENT_LAYOUT_H_
#define TESSERA_PLACEMENT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/placement.h"
#include "tessera/placement/region.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera {

// One entry per mesh axis.
using Placements = absl::InlinedVector<Placement, 4>;

// A tensor on a mesh: meta, mesh, one placement per mesh axis, and the order
// in which axes that shard one tensor dim cut it.
//
// Text follows DTensor: one placement per axis, and behind S(d) its position
// in the cutting order of dim d, 0 first, written where the order is not
// simply that of the mesh axes:
//
//   bf16[4096,14336] [P(sum), S(0)]
//   f32[18] [S(0)[1], S(0)[0]]          axis 1 cuts dim 0 first
//
// Each cut follows CeilSplit within what the cuts before it left, so extents
// may be uneven and pieces empty; the region of an empty piece begins at the
// tensor's extent. A ragged cut (at most one, over any number of axes) then
// cuts the flattening of what is left.
//
// Two layouts are equal if meta, mesh, placements and cutting order are.
// Immutable value with cheap copies; thread-safe.
class Layout {
 public:
  // The cutting order of one tensor dim: the axes that shard it, major first.
  struct DimOrder {
    int dim;
    absl::InlinedVector<int, 4> axes;
  };

  // A replicated scalar f32 on the mesh of one rank.
  Layout();

  // No moves but copies, so that no layout is without its value.
  Layout(const Layout&) = default;
  Layout& operator=(const Layout&) = default;

  // Dims without an entry in `order` are cut in mesh-axis order. Negative dims
  // count from the end. ERRORS: InvalidArgument for a number of placements
  // that is not the mesh's number of axes; a dim out of range; an order that
  // does not list exactly the axes that shard its dim; Partial ops that do not
  // commute (only sum and avg may be mixed); avg of integers; ragged axes that
  // do not share one cut at positions 0..k-1; a ragged cut that does not cover
  // the largest piece that the Shard axes leave.
  static absl::StatusOr<Layout> Create(TensorMeta meta, DeviceMesh mesh,
                                       absl::Span<const Placement> placements,
                                       absl::Span<const DimOrder> order = {});

  // The inverse of ToString, on a given mesh. "P" stands for "P(sum)",
  // "Ragged(c)" for "Ragged(c)[0]"; white space between the parts is allowed.
  // ERRORS: InvalidArgument, quoting the part that does not parse, and those
  // of Create.
  static absl::StatusOr<Layout> Parse(absl::string_view text,
                                      const DeviceMesh& mesh);

  // The same tensor and mesh with other placements, e.g. With("[R, S(1)]").
  absl::StatusOr<Layout> With(absl::string_view placements) const;
  absl::StatusOr<Layout> With(absl::Span<const Placement> placements,
                              absl::Span<const DimOrder> order = {}) const;

  const TensorMeta& meta() const { return rep_->meta; }
  DType dtype() const { return meta().dtype(); }
  const Shape& shape() const { return meta().shape(); }
  const DeviceMesh& mesh() const { return rep_->mesh; }
  const Placement& placement(int axis) const { return rep_->placements[axis]; }
  absl::Span<const Placement> placements() const { return rep_->placements; }

  // The axes that shard `dim`, in cutting order, major first.
  absl::InlinedVector<int, 4> ShardAxes(int dim) const;
  // The place of `axis` in the cutting order of the dim that it shards.
  // REQUIRES: placement(axis).is_shard().
  int order_position(int axis) const { return rep_->positions[axis]; }
  // The axes of the ragged cut by position; empty without one.
  absl::InlinedVector<int, 4> RaggedAxes() const;
  bool HasPartial() const;

  // What the rank at these mesh coordinates holds.
  // REQUIRES: one coordinate per axis, each inside its axis.
  Region RegionAt(absl::Span<const int> coords) const;
  // What `rank` holds; outside the mesh a region without elements.
  Region RegionOf(int rank) const;
  // Shape and dtype of the dense tensor that `rank` holds.
  TensorMeta LocalMeta(int rank) const;
  // The region at coordinate 0 of every axis: no rank holds more elements per
  // dim, nor, without a ragged cut, more elements.
  Region LargestRegion() const;
  // The most elements that one rank holds.
  // COST: nothing that grows with the mesh, but for an explicit ragged cut,
  // whose bounds it goes through.
  int64_t MostElements() const;

  std::string ToString() const;            // "f32[8,4] [S(0), R]"
  std::string PlacementsToString() const;  // "[S(0), R]"

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.rep_ == b.rep_ || *a.rep_ == *b.rep_;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Layout& l) {
    return H::combine(std::move(h), l.rep_->hash);
  }
  friend std::ostream& operator<<(std::ostream& os, const Layout& l) {
    return os << l.ToString();
  }

 private:
  struct Rep {
    // Of all the rest, computed once: layouts are hashed more often than made.
    // First, so that layouts that differ are mostly told apart by it.
    size_t hash;
    TensorMeta meta;
    DeviceMesh mesh;
    Placements placements;
    // Per axis its place in the cutting order of its dim; 0 where not Shard.
    absl::InlinedVector<int, 4> positions;

    friend bool operator==(const Rep&, const Rep&) = default;
  };

  Layout(TensorMeta meta, DeviceMesh mesh, Placements placements,
         absl::InlinedVector<int, 4> positions);

  std::shared_ptr<const Rep> rep_;  // never null
};

}  // namespace tessera

#endif  // TESSERA_PLACEMENT_LAYOUT_H_
