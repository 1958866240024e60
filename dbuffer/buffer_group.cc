#include "tessera/dbuffer/buffer_group.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera {
namespace {

using Options = BufferGroup::Options;

absl::Status CheckAxes(const DeviceMesh& mesh, absl::Span<const int> axes) {
  std::vector<bool> seen(mesh.num_axes(), false);
  for (int axis : axes) {
    if (axis < 0 || axis >= mesh.num_axes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("dbuffer: data-parallel axis ", axis, " is not one of ",
                       mesh.num_axes(), " of mesh '", mesh.ToString(), "'"));
    }
    if (seen[axis]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dbuffer: data-parallel axis '", mesh.axis(axis).name, "' repeats"));
    }
    seen[axis] = true;
  }
  return absl::OkStatus();
}

// `options` with the default cut order written out. Checks all but narrowest.
absl::StatusOr<Options> Complete(const DeviceMesh& mesh, Options options) {
  TESSERA_RETURN_IF_ERROR(CheckAxes(mesh, options.axes));
  if (options.cut_order.empty()) {
    options.cut_order.assign(options.axes.rbegin(), options.axes.rend());
  }
  if (!std::is_permutation(options.cut_order.begin(), options.cut_order.end(),
                           options.axes.begin(), options.axes.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want a cut order of the axes (",
                     absl::StrJoin(options.axes, ","), "), each once, found (",
                     absl::StrJoin(options.cut_order, ","), ")"));
  }
  const int num_axes = static_cast<int>(options.axes.size());
  if (options.num_flat_axes < 0 || options.num_flat_axes > num_axes) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: ", options.num_flat_axes,
                     " flat axes, want 0 to ", num_axes));
  }
  return options;
}

absl::Status CheckTensorPlacement(const Layout& layout, int axis,
                                  bool data_parallel) {
  const Placement& placement = layout.placement(axis);
  const bool fits = data_parallel
                        ? placement.is_replicate()
                        : placement.is_replicate() || placement.is_shard();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "dbuffer: want R", data_parallel ? "" : " or S(dim)", " along ",
      data_parallel ? "data-parallel " : "", "axis '",
      layout.mesh().axis(axis).name, "', found ", placement.ToString()));
}

absl::Status CheckLayout(const DeviceMesh& mesh, const Options& options,
                         DType dtype, const Layout& layout) {
  if (layout.mesh() != mesh) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want mesh '", mesh.ToString(), "', found '",
                     layout.mesh().ToString(), "'"));
  }
  if (layout.dtype() != dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: want ", DTypeName(dtype), " as the first tensor has, found ",
        DTypeName(layout.dtype())));
  }
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    TESSERA_RETURN_IF_ERROR(CheckTensorPlacement(
        layout, axis, absl::c_linear_search(options.axes, axis)));
  }
  return absl::OkStatus();
}

absl::Status CheckGranules(const BufferGroup::Tensor& tensor) {
  const Layout& layout = tensor.layout;
  const Shape& shape = layout.shape();
  const int first = tensor.granularity.FirstWholeDim(shape);
  for (int dim = first; dim < shape.num_dims(); ++dim) {
    int64_t parts = 1;
    for (int axis : layout.ShardAxes(dim)) {
      parts *= layout.mesh().axis(axis).size;
    }
    if (shape.extent(dim) % parts == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: want equal granules ('", tensor.granularity.ToString(),
        "') on every rank, found dim ", dim, " of ", shape.ToString(),
        " cut in ", parts, " unequal parts"));
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const DeviceMesh& mesh, const Options& options,
                          absl::Span<const BufferGroup::Tensor> tensors) {
  for (const BufferGroup::Tensor& tensor : tensors) {
    absl::Status status = CheckLayout(
        mesh, options, tensors.front().layout.dtype(), tensor.layout);
    status.Update(CheckGranules(tensor));
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(status.message(), " in tensor '", tensor.name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const BufferGroup>> BufferGroup::Create(
    DeviceMesh mesh, std::vector<Tensor> tensors, Options options) {
  TESSERA_ASSIGN_OR_RETURN(options, Complete(mesh, std::move(options)));
  TESSERA_RETURN_IF_ERROR(CheckTensors(mesh, options, tensors));
  std::vector<FlatLayout::Tensor> largest;
  for (const Tensor& tensor : tensors) {
    largest.push_back({tensor.name, tensor.layout.LargestRegion().LocalShape(),
                       tensor.granularity});
  }
  int64_t parts = 1;
  for (int i = 0; i < options.num_flat_axes; ++i) {
    parts *= mesh.axis(options.cut_order[i]).size;
  }
  TESSERA_ASSIGN_OR_RETURN(
      FlatLayout flat_layout,
      FlatLayout::Create(largest, parts, options.narrowest));
  return std::shared_ptr<const BufferGroup>(
      new BufferGroup(std::move(mesh), std::move(tensors), std::move(options),
                      std::move(flat_layout)));
}

int BufferGroup::IndexOf(int axis) const {
  return static_cast<int>(absl::c_find(options_.axes, axis) -
                          options_.axes.begin());
}

const BufferPlacement& BufferGroup::PlacementOf(
    absl::Span<const BufferPlacement> placements, int axis) const {
  return placements[IndexOf(axis)];
}

absl::Status BufferGroup::Validate(
    absl::Span<const BufferPlacement> placements) const {
  if (placements.size() != axes().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: want one placement for each of the ", axes().size(),
        " data-parallel axes, found ", BufferPlacementsToString(placements)));
  }
  for (size_t i = 1; i < cut_order().size(); ++i) {
    const int before = cut_order()[i - 1];
    const int axis = cut_order()[i];
    if (PlacementOf(placements, axis).is_flat() &&
        !PlacementOf(placements, before).is_flat()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dbuffer: axis '", mesh_.axis(axis).name, "' is Flat, but axis '",
          mesh_.axis(before).name, "', which cuts before it, is not: ",
          BufferPlacementsToString(placements)));
    }
  }
  const int num_flat = NumFlat(placements);
  if (num_flat > options_.num_flat_axes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dbuffer: axis '", mesh_.axis(cut_order()[num_flat - 1]).name,
        "' is Flat, but the group has ", options_.num_flat_axes,
        " flat axes: ", BufferPlacementsToString(placements)));
  }
  // Layouts know which ops may be mixed.
  Placements partial(mesh_.num_axes());
  for (size_t i = 0; i < placements.size(); ++i) {
    if (!placements[i].is_partial()) continue;
    partial[axes()[i]] = Placement::Partial(placements[i].op());
  }
  return Layout::Create(TensorMeta(), mesh_, partial).status();
}

int BufferGroup::NumFlat(absl::Span<const BufferPlacement> placements) const {
  return static_cast<int>(absl::c_count_if(
      placements, [](const BufferPlacement& p) { return p.is_flat(); }));
}

int64_t BufferGroup::RangeSize(
    absl::Span<const BufferPlacement> placements) const {
  int64_t size = flat_layout_.num_elements();
  for (int i = 0; i < NumFlat(placements); ++i) {
    size /= mesh_.axis(cut_order()[i]).size;
  }
  return size;
}

absl::StatusOr<Interval> BufferGroup::RangeOf(
    absl::Span<const BufferPlacement> placements, int rank) const {
  TESSERA_ASSIGN_OR_RETURN(const MeshCoords coords,
                           mesh_.RequireCoordsOf(rank));
  Interval range{0, flat_layout_.num_elements()};
  for (int i = 0; i < NumFlat(placements); ++i) {
    const int axis = cut_order()[i];
    const int64_t part = range.size() / mesh_.axis(axis).size;
    range.begin += coords[axis] * part;
    range.end = range.begin + part;
  }
  return range;
}

absl::StatusOr<Layout> BufferGroup::TensorLayout(
    int i, DType dtype, absl::Span<const BufferPlacement> placements) const {
  TESSERA_ASSIGN_OR_RETURN(
      const RaggedCut cut,
      RaggedCut::Affine(-flat_layout_.offset(i), RangeSize(placements)));
  const Layout& own = tensors_[i].layout;
  TESSERA_ASSIGN_OR_RETURN(TensorMeta meta,
                           TensorMeta::Create(dtype, own.shape()));
  Placements result(own.placements().begin(), own.placements().end());
  for (size_t k = 0; k < placements.size(); ++k) {
    if (!placements[k].is_partial()) continue;
    result[axes()[k]] = Placement::Partial(placements[k].op());
  }
  for (int k = 0; k < NumFlat(placements); ++k) {
    result[cut_order()[k]] = Placement::Ragged(cut, k);
  }
  std::vector<Layout::DimOrder> order;
  for (int dim = 0; dim < own.shape().num_dims(); ++dim) {
    order.push_back({dim, own.ShardAxes(dim)});
  }
  return Layout::Create(std::move(meta), mesh_, result, order);
}

}  // namespace tessera
