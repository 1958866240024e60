#ifndef TESSERA_FSDP_DATA_PARALLEL_AXES_H_
#define TESSERA_FSDP_DATA_PARALLEL_AXES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/mesh/device_mesh.h"

namespace tessera::internal {

// The axes of a mesh over which a unit is data-parallel, any of them in any
// order. Immutable value.
class DataParallelAxes {
 public:
  // `names` outer before inner; `cut_order` a permutation of them, empty: the
  // last one first. ERRORS: InvalidArgument for a name that the mesh does not
  // have or that repeats, or another cut order.
  static absl::StatusOr<DataParallelAxes> Create(
      const DeviceMesh& mesh, std::vector<std::string> names,
      std::vector<std::string> cut_order);

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& cut_names() const { return cut_names_; }
  // The same as indices into the mesh.
  const std::vector<int>& axes() const { return axes_; }
  const std::vector<int>& cut_axes() const { return cut_axes_; }
  // The product of their sizes.
  double num_ranks() const { return num_ranks_; }

  std::string ToString() const;  // "dp_outer,dp_inner cut dp_inner,dp_outer"

 private:
  DataParallelAxes() = default;

  std::vector<std::string> names_;
  std::vector<std::string> cut_names_;
  std::vector<int> axes_;
  std::vector<int> cut_axes_;
  double num_ranks_ = 1;
};

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_DATA_PARALLEL_AXES_H_
