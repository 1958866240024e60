#include "tessera/fsdp/data_parallel_axes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

absl::StatusOr<std::vector<int>> FindAxes(const DeviceMesh& mesh,
                                          absl::Span<const std::string> names) {
  const std::vector<absl::string_view> views(names.begin(), names.end());
  TESSERA_ASSIGN_OR_RETURN(MeshCoords axes, mesh.FindAxes(views));
  return std::vector<int>(axes.begin(), axes.end());
}

}  // namespace

absl::StatusOr<DataParallelAxes> DataParallelAxes::Create(
    const DeviceMesh& mesh, std::vector<std::string> names,
    std::vector<std::string> cut_order) {
  if (cut_order.empty()) cut_order.assign(names.rbegin(), names.rend());
  DataParallelAxes result;
  TESSERA_ASSIGN_OR_RETURN(result.axes_, FindAxes(mesh, names));
  TESSERA_ASSIGN_OR_RETURN(result.cut_axes_, FindAxes(mesh, cut_order));
  if (!std::is_permutation(names.begin(), names.end(), cut_order.begin(),
                           cut_order.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("fsdp: cut order ", absl::StrJoin(cut_order, ","),
                     " is not a permutation of the data-parallel axes ",
                     absl::StrJoin(names, ",")));
  }
  for (int axis : result.axes_) result.num_ranks_ *= mesh.axis(axis).size;
  result.names_ = std::move(names);
  result.cut_names_ = std::move(cut_order);
  return result;
}

std::string DataParallelAxes::ToString() const {
  return absl::StrCat(absl::StrJoin(names_, ","), " cut ",
                      absl::StrJoin(cut_names_, ","));
}

}  // namespace tessera::internal
