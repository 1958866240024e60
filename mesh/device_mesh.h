#ifndef TESSERA_MESH_DEVICE_MESH_H_
#define TESSERA_MESH_DEVICE_MESH_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

// One axis of a mesh. Going one step along it goes `stride` ranks further in
// the world. In a mesh the stride of an axis of size 1 is 1, whatever was
// given, so that equal arrangements are equal values.
struct MeshAxis {
  std::string name;
  int size = 1;
  int stride = 1;

  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// One int per mesh axis: a coordinate, or a list of axes.
using MeshCoords = absl::InlinedVector<int, 4>;

// A named N-D arrangement of ranks of the world: an affine map
//
//   rank(coords) = offset + sum_i coords[i] * axis(i).stride
//
// so that a mesh of 100,000 ranks is as small as one of four, and slices and
// flattenings are meshes themselves. No two coordinates give one rank.
//
//   TESSERA_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("dp=2,tp=4"));
//   mesh.RankAt({1, 2})       == 6
//   mesh.Slice({"tp"}, 6)     == "tp=4@4": ranks 4 5 6 7
//   mesh.Slice({"dp"}, 6)     == "dp=2:4@2": ranks 2 6
//   mesh.Flatten({"dp", "tp"}, "world") == "world=8"
//
// A rank is a number in the world, an axis an index into the mesh. Names count
// in equality. Immutable value with cheap copies; thread-safe.
class DeviceMesh {
 public:
  // A mesh of one rank, 0, without axes.
  DeviceMesh();

  // No moves but copies, so that no mesh is without its value.
  DeviceMesh(const DeviceMesh&) = default;
  DeviceMesh& operator=(const DeviceMesh&) = default;

  // Row-major over `names` and `sizes`: the last axis has stride 1.
  // Rank `offset` lies at coordinate 0.
  // ERRORS: InvalidArgument for a name that is empty, repeated or not of
  // letters, digits and '_' (a digit not first); for a size below 1; for a
  // negative offset; for an end_rank() beyond 2^31 - 1.
  struct AxisSize {
    absl::string_view name;
    int size;
  };
  static absl::StatusOr<DeviceMesh> Create(absl::Span<const AxisSize> axes,
                                           int offset = 0);

  // Any strides. ERRORS: as above, and InvalidArgument where strides are
  // negative or could give two coordinates the same rank: sorted by stride,
  // each axis of size above 1 must step beyond all that the smaller ones
  // reach.
  static absl::StatusOr<DeviceMesh> CreateAffine(
      absl::Span<const MeshAxis> axes, int offset);

  // The inverse of ToString: "name=size[:stride],...[@offset]". Without any
  // stride the mesh is row-major; with one, all axes of size above 1 need
  // theirs. White space between the parts is allowed. "" is the mesh of one
  // rank without axes.
  // ERRORS: InvalidArgument, quoting the part that does not parse.
  static absl::StatusOr<DeviceMesh> Parse(absl::string_view text);

  int num_axes() const;
  const MeshAxis& axis(int axis) const;
  absl::Span<const MeshAxis> axes() const;
  int offset() const;
  // Number of ranks: the product of the sizes.
  int size() const;
  // One above the greatest rank.
  int end_rank() const;

  // The index of the axis called `name`.
  // ERRORS: InvalidArgument, listing the mesh's axes.
  absl::StatusOr<int> FindAxis(absl::string_view name) const;
  // The same for several, in the order given. ERRORS: also where one repeats.
  absl::StatusOr<MeshCoords> FindAxes(
      absl::Span<const absl::string_view> names) const;

  // REQUIRES: one coordinate per axis, each inside the axis.
  int RankAt(absl::Span<const int> coords) const;
  // The coordinates of `rank`, or nullopt for a rank outside the mesh.
  std::optional<MeshCoords> CoordsOf(int rank) const;
  bool Contains(int rank) const { return CoordsOf(rank).has_value(); }
  // CoordsOf as a Status. ERRORS: InvalidArgument naming rank and mesh.
  absl::StatusOr<MeshCoords> RequireCoordsOf(int rank) const;

  // The ranks that `rank` reaches along `axes`, the others held fixed: a mesh
  // of these axes, in this order. With the names it is what users of DTensor
  // write as mesh["dp", "tp"].
  // ERRORS: InvalidArgument for an axis that is unknown or repeats, or a rank
  // outside the mesh.
  absl::StatusOr<DeviceMesh> Slice(absl::Span<const int> axes, int rank) const;
  absl::StatusOr<DeviceMesh> Slice(absl::Span<const absl::string_view> names,
                                   int rank) const;
  // For Slice({0, 1}, rank): the 0 alone could also be a null name.
  absl::StatusOr<DeviceMesh> Slice(std::initializer_list<int> axes,
                                   int rank) const {
    return Slice(absl::Span<const int>(axes.begin(), axes.size()), rank);
  }

  // This mesh with `names`, in this order, merged into one axis `new_name`
  // that stands where names[0] stood; the last varies fastest.
  // ERRORS: InvalidArgument as for Slice, for no names or a bad new name, or
  // where the strides of the axes do not nest (stride_i == size_(i+1) *
  // stride_(i+1), axes of size 1 aside), so that no single stride walks them.
  absl::StatusOr<DeviceMesh> Flatten(absl::Span<const absl::string_view> names,
                                     absl::string_view new_name) const;

  // "dp=2,tp=4"; strides and offset where the mesh is not row-major from 0.
  std::string ToString() const;

  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);
  template <typename H>
  friend H AbslHashValue(H h, const DeviceMesh& m) {
    h = H::combine(std::move(h), m.offset(), m.num_axes());
    for (const MeshAxis& a : m.axes()) {
      h = H::combine(std::move(h), a.name, a.size, a.stride);
    }
    return h;
  }
  friend std::ostream& operator<<(std::ostream& os, const DeviceMesh& m) {
    return os << m.ToString();
  }

 private:
  struct Rep;
  explicit DeviceMesh(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}

  std::shared_ptr<const Rep> rep_;  // never null
};

}  // namespace tessera

#endif  // TESSERA_MESH_DEVICE_MESH_H_
