#include "tessera/mesh/device_mesh.h"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/scanner.h"
#include "tessera/base/status_macros.h"

namespace tessera {

struct DeviceMesh::Rep {
  std::vector<MeshAxis> axes;
  int offset = 0;
  int size = 1;
  int end_rank = 1;
  // The axes of size above 1 with the greatest stride first: coordinates of a
  // rank are found by division in this order.
  MeshCoords by_stride;
};

namespace {

constexpr int64_t kMaxRanks = std::numeric_limits<int>::max();

std::string AxisToString(const MeshAxis& axis) {
  return absl::StrCat(axis.name, "=", axis.size, ":", axis.stride);
}

std::string AxesToString(absl::Span<const MeshAxis> axes) {
  return absl::StrJoin(axes, ",", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, AxisToString(axis));
  });
}

absl::Status CheckAxes(absl::Span<const MeshAxis> axes) {
  std::set<absl::string_view> names;
  for (const MeshAxis& axis : axes) {
    if (!internal::IsName(axis.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: want an axis name of letters, digits and '_' "
                       "that begins with no digit, found '",
                       axis.name, "'"));
    }
    if (!names.insert(axis.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: axis name '", axis.name, "' repeats"));
    }
    if (axis.size < 1) {
      return absl::InvalidArgumentError(absl::StrCat("mesh: axis '", axis.name,
                                                     "' has size ", axis.size,
                                                     ", want at least 1"));
    }
    if (axis.stride < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: axis '", axis.name, "' has stride ", axis.stride,
                       ", want at least 0"));
    }
  }
  return absl::OkStatus();
}

absl::Status TooManyRanks(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("mesh: ", what, " goes beyond ", kMaxRanks, " ranks"));
}

MeshCoords AxesByStride(absl::Span<const MeshAxis> axes) {
  MeshCoords result;
  for (int i = 0; i < static_cast<int>(axes.size()); ++i) {
    if (axes[i].size > 1) result.push_back(i);
  }
  std::sort(result.begin(), result.end(),
            [&](int a, int b) { return axes[a].stride > axes[b].stride; });
  return result;
}

// One above the greatest rank of a mesh with these axes, whose ranks have to
// be distinct.
absl::StatusOr<int> EndRank(absl::Span<const MeshAxis> axes,
                            const MeshCoords& by_stride, int offset) {
  int64_t reach = 0;  // from rank 0 over the axes of smaller strides
  for (auto i = by_stride.rbegin(); i != by_stride.rend(); ++i) {
    const MeshAxis& axis = axes[*i];
    if (axis.stride <= reach) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mesh: axis '", axis.name, "' has stride ", axis.stride,
          ", want more than ", reach, ", as far as the axes of smaller ",
          "strides reach, in ", AxesToString(axes)));
    }
    reach += int64_t{axis.size - 1} * axis.stride;
    if (reach + offset >= kMaxRanks) return TooManyRanks(AxesToString(axes));
  }
  if (reach + offset >= kMaxRanks) {
    return TooManyRanks(absl::StrCat("offset ", offset));
  }
  return static_cast<int>(reach + offset + 1);
}

// Gives the axes, sizes set, the strides of a row-major mesh.
absl::Status SetRowMajorStrides(absl::Span<MeshAxis> axes) {
  int64_t stride = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    axis->stride = static_cast<int>(stride);
    stride *= axis->size;
    if (stride > kMaxRanks) {
      return TooManyRanks(
          absl::StrCat("axis '", axis->name, "' of size ", axis->size));
    }
  }
  return absl::OkStatus();
}

bool IsRowMajor(absl::Span<const MeshAxis> axes) {
  int64_t stride = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (axis->size > 1 && axis->stride != stride) return false;
    stride *= axis->size;
  }
  return true;
}

// Reads "name=size[:stride]". Without a stride it is 0.
absl::StatusOr<MeshAxis> ParseAxis(internal::Scanner& scanner) {
  MeshAxis axis;
  axis.name = std::string(scanner.ConsumeName());
  if (axis.name.empty()) return scanner.Error("an axis name");
  if (!scanner.Consume("=")) return scanner.Error("'=' and an axis size");
  const std::optional<int> size = scanner.ConsumeInt<int>();
  if (!size.has_value()) return scanner.Error("an axis size");
  axis.size = *size;
  axis.stride = 0;
  if (scanner.Consume(":")) {
    const std::optional<int> stride = scanner.ConsumeInt<int>();
    if (!stride.has_value()) return scanner.Error("a stride");
    if (*stride < 1) {
      return absl::InvalidArgumentError(absl::StrCat("mesh: axis '", axis.name,
                                                     "' has stride ", *stride,
                                                     ", want at least 1"));
    }
    axis.stride = *stride;
  }
  return axis;
}

bool LacksStride(const MeshAxis& axis) {
  return axis.size > 1 && axis.stride == 0;
}

// Fills in strides where the text names none at all.
absl::Status CompleteStrides(absl::Span<MeshAxis> axes) {
  const auto lacking = std::find_if(axes.begin(), axes.end(), LacksStride);
  if (lacking == axes.end()) return absl::OkStatus();
  for (const MeshAxis& axis : axes) {
    if (axis.stride != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mesh: axis '", axis.name, "' has a stride and axis '", lacking->name,
          "' has none, want strides for all axes or for none"));
    }
  }
  return SetRowMajorStrides(axes);
}

// Checks that these are different axes of the mesh.
absl::Status CheckAxisList(const DeviceMesh& mesh, absl::Span<const int> axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= mesh.num_axes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: no axis ", axes[i], " in mesh '", mesh.ToString(),
                       "' of ", mesh.num_axes(), " axes"));
    }
    if (absl::c_linear_search(axes.first(i), axes[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: axis '", mesh.axis(axes[i]).name,
                       "' repeats in a list of axes"));
    }
  }
  return absl::OkStatus();
}

// The one axis that walks all of `axes`, the last one fastest.
absl::StatusOr<MeshAxis> Merge(const DeviceMesh& mesh,
                               absl::Span<const int> axes,
                               absl::string_view name) {
  MeshAxis merged{std::string(name), 1, 1};
  for (auto i = axes.rbegin(); i != axes.rend(); ++i) {
    const MeshAxis& axis = mesh.axis(*i);
    if (axis.size == 1) continue;
    const int64_t nested = int64_t{merged.size} * merged.stride;
    if (merged.size > 1 && axis.stride != nested) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mesh: axis '", axis.name, "' has stride ", axis.stride, ", want ",
          nested, " to flatten it with the axes behind it in mesh '",
          mesh.ToString(), "'"));
    }
    if (merged.size == 1) merged.stride = axis.stride;
    merged.size *= axis.size;
  }
  return merged;
}

}  // namespace

DeviceMesh::DeviceMesh() : rep_(std::make_shared<Rep>()) {}

absl::StatusOr<DeviceMesh> DeviceMesh::Create(absl::Span<const AxisSize> axes,
                                              int offset) {
  std::vector<MeshAxis> full;
  full.reserve(axes.size());
  for (const AxisSize& axis : axes) {
    full.push_back({std::string(axis.name), axis.size, 1});
  }
  TESSERA_RETURN_IF_ERROR(CheckAxes(full));
  TESSERA_RETURN_IF_ERROR(SetRowMajorStrides(absl::MakeSpan(full)));
  return CreateAffine(full, offset);
}

absl::StatusOr<DeviceMesh> DeviceMesh::CreateAffine(
    absl::Span<const MeshAxis> axes, int offset) {
  TESSERA_RETURN_IF_ERROR(CheckAxes(axes));
  if (offset < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh: want an offset of at least 0, found ", offset));
  }
  auto rep = std::make_shared<Rep>();
  rep->axes.assign(axes.begin(), axes.end());
  rep->offset = offset;
  rep->by_stride = AxesByStride(axes);
  TESSERA_ASSIGN_OR_RETURN(rep->end_rank,
                           EndRank(axes, rep->by_stride, offset));
  for (MeshAxis& axis : rep->axes) {
    if (axis.size == 1) axis.stride = 1;
    rep->size *= axis.size;  // no more than end_rank: ranks are distinct
  }
  return DeviceMesh(std::move(rep));
}

absl::StatusOr<DeviceMesh> DeviceMesh::Parse(absl::string_view text) {
  internal::Scanner scanner("mesh", text);
  std::vector<MeshAxis> axes;
  int offset = 0;
  while (!scanner.AtEnd()) {
    if (scanner.Consume("@")) {
      const std::optional<int> value = scanner.ConsumeInt<int>();
      if (!value.has_value()) return scanner.Error("an offset");
      if (!scanner.AtEnd()) return scanner.Error("the end of the mesh");
      offset = *value;
      break;
    }
    if (!axes.empty() && !scanner.Consume(",")) {
      return scanner.Error("',' or '@'");
    }
    TESSERA_ASSIGN_OR_RETURN(MeshAxis axis, ParseAxis(scanner));
    axes.push_back(std::move(axis));
  }
  TESSERA_RETURN_IF_ERROR(CheckAxes(axes));
  TESSERA_RETURN_IF_ERROR(CompleteStrides(absl::MakeSpan(axes)));
  return CreateAffine(axes, offset);
}

int DeviceMesh::num_axes() const { return static_cast<int>(rep_->axes.size()); }
const MeshAxis& DeviceMesh::axis(int axis) const { return rep_->axes[axis]; }
absl::Span<const MeshAxis> DeviceMesh::axes() const { return rep_->axes; }
int DeviceMesh::offset() const { return rep_->offset; }
int DeviceMesh::size() const { return rep_->size; }
int DeviceMesh::end_rank() const { return rep_->end_rank; }

absl::StatusOr<int> DeviceMesh::FindAxis(absl::string_view name) const {
  for (int i = 0; i < num_axes(); ++i) {
    if (axis(i).name == name) return i;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("mesh: no axis '", name, "' in mesh '", ToString(), "'"));
}

absl::StatusOr<MeshCoords> DeviceMesh::FindAxes(
    absl::Span<const absl::string_view> names) const {
  MeshCoords result;
  for (absl::string_view name : names) {
    TESSERA_ASSIGN_OR_RETURN(const int axis, FindAxis(name));
    result.push_back(axis);
  }
  TESSERA_RETURN_IF_ERROR(CheckAxisList(*this, result));
  return result;
}

int DeviceMesh::RankAt(absl::Span<const int> coords) const {
  int rank = rep_->offset;
  for (int i = 0; i < num_axes(); ++i) rank += coords[i] * axis(i).stride;
  return rank;
}

std::optional<MeshCoords> DeviceMesh::CoordsOf(int rank) const {
  if (rank < rep_->offset || rank >= rep_->end_rank) return std::nullopt;
  MeshCoords coords(rep_->axes.size(), 0);
  int rest = rank - rep_->offset;
  for (int i : rep_->by_stride) {
    coords[i] = rest / axis(i).stride;
    if (coords[i] >= axis(i).size) return std::nullopt;
    rest -= coords[i] * axis(i).stride;
  }
  if (rest != 0) return std::nullopt;
  return coords;
}

absl::StatusOr<MeshCoords> DeviceMesh::RequireCoordsOf(int rank) const {
  std::optional<MeshCoords> coords = CoordsOf(rank);
  if (!coords.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh: rank ", rank, " lies outside mesh '", ToString(), "'"));
  }
  return *std::move(coords);
}

absl::StatusOr<DeviceMesh> DeviceMesh::Slice(absl::Span<const int> axes,
                                             int rank) const {
  TESSERA_RETURN_IF_ERROR(CheckAxisList(*this, axes));
  TESSERA_ASSIGN_OR_RETURN(const MeshCoords coords, RequireCoordsOf(rank));
  std::vector<MeshAxis> sliced;
  int offset = rank;
  for (int i : axes) {
    sliced.push_back(axis(i));
    offset -= coords[i] * axis(i).stride;
  }
  return CreateAffine(sliced, offset);
}

absl::StatusOr<DeviceMesh> DeviceMesh::Slice(
    absl::Span<const absl::string_view> names, int rank) const {
  TESSERA_ASSIGN_OR_RETURN(const MeshCoords axes, FindAxes(names));
  return Slice(axes, rank);
}

absl::StatusOr<DeviceMesh> DeviceMesh::Flatten(
    absl::Span<const absl::string_view> names,
    absl::string_view new_name) const {
  TESSERA_ASSIGN_OR_RETURN(const MeshCoords merged, FindAxes(names));
  if (merged.empty()) {
    return absl::InvalidArgumentError(
        "mesh: want at least one axis to flatten, found none");
  }
  TESSERA_ASSIGN_OR_RETURN(const MeshAxis flat, Merge(*this, merged, new_name));
  std::vector<MeshAxis> axes;
  for (int i = 0; i < num_axes(); ++i) {
    if (i == merged.front()) {
      axes.push_back(flat);
    } else if (!absl::c_linear_search(merged, i)) {
      axes.push_back(axis(i));
    }
  }
  return CreateAffine(axes, offset());
}

std::string DeviceMesh::ToString() const {
  const bool with_strides = !IsRowMajor(axes());
  std::string text = absl::StrJoin(
      axes(), ",", [with_strides](std::string* out, const MeshAxis& axis) {
        absl::StrAppend(out, axis.name, "=", axis.size);
        if (with_strides && axis.size > 1) {
          absl::StrAppend(out, ":", axis.stride);
        }
      });
  if (offset() != 0) absl::StrAppend(&text, "@", offset());
  return text;
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  return a.rep_ == b.rep_ || (a.offset() == b.offset() && a.axes() == b.axes());
}

}  // namespace tessera
