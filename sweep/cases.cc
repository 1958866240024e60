#include "tessera/sweep/cases.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/placement/layout.h"
#include "tessera/tensor/tensor_meta.h"

namespace tessera::internal {
namespace {

constexpr double kMostCases = 1e6;

absl::Status Wrong(absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("sweep: ", problem));
}

// R, P(sum) and S(d) of every dim.
std::vector<Placement> PlacementsOf(const Shape& shape) {
  std::vector<Placement> all = {Placement::Replicate(), Placement::Partial()};
  for (int dim = 0; dim < shape.num_dims(); ++dim) {
    all.push_back(Placement::Shard(dim));
  }
  return all;
}

double NumPairs(const SweepSpec& spec, const DeviceMesh& mesh,
                const Shape& shape) {
  if (!spec.all_pairs) {
    return static_cast<double>(spec.from.size() * spec.to.size());
  }
  const double layouts = std::pow(shape.num_dims() + 2, mesh.num_axes());
  return layouts * (layouts - 1);
}

absl::Status Check(const SweepSpec& spec) {
  if (spec.meshes.empty()) return Wrong("want at least one mesh, found none");
  if (spec.shapes.empty()) return Wrong("want at least one shape, found none");
  const bool has_layouts = !spec.from.empty() && !spec.to.empty();
  const bool has_any = !spec.from.empty() || !spec.to.empty();
  if (spec.all_pairs ? has_any : !has_layouts) {
    return Wrong("want layouts to go from and to, or all pairs");
  }
  if (spec.turns < 1) {
    return Wrong(absl::StrCat("want at least 1 turn, found ", spec.turns));
  }
  double cases = 0;
  for (const DeviceMesh& mesh : spec.meshes) {
    for (const Shape& shape : spec.shapes) {
      cases += NumPairs(spec, mesh, shape) *
               static_cast<double>(std::max<size_t>(1, spec.bytes.size()));
    }
  }
  if (cases <= kMostCases) return absl::OkStatus();
  return Wrong(absl::StrCat("want at most ", kMostCases,
                            " combinations, found ", cases));
}

// The shape with dim 0 as long as gives about `bytes`.
absl::StatusOr<TensorMeta> Resize(DType dtype, const Shape& shape,
                                  int64_t bytes) {
  Dims extents(shape.extents().begin(), shape.extents().end());
  if (extents.empty()) return Wrong("a scalar has no dim to make longer");
  extents[0] = 1;
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta row,
                           TensorMeta::Create(dtype, extents));
  const int64_t row_bytes = std::max<int64_t>(1, row.num_bytes());
  if (row_bytes > bytes) {
    return Wrong(absl::StrCat("want ", bytes, " bytes, found that ",
                              row.ToString(), " has ", row_bytes));
  }
  extents[0] = bytes / row_bytes;
  return TensorMeta::Create(dtype, extents);
}

absl::StatusOr<TensorMeta> TensorOf(const SweepSpec& spec, const Shape& shape,
                                    std::optional<int64_t> bytes) {
  return bytes.has_value() ? Resize(spec.dtype, shape, *bytes)
                           : TensorMeta::Create(spec.dtype, shape);
}

// A placement without brackets is that of every axis.
std::string ForAllAxes(const std::string& text, int num_axes) {
  if (absl::StartsWith(text, "[")) return text;
  const std::vector<std::string> placements(num_axes, text);
  return absl::StrCat("[", absl::StrJoin(placements, ", "), "]");
}

// All layouts of the tensor, from the first placement on every axis to the last
// one, the last axis fastest.
std::vector<Layout> AllLayouts(const Layout& replicated) {
  const std::vector<Placement> all = PlacementsOf(replicated.shape());
  std::vector<Placements> sequences = {{}};
  for (int axis = 0; axis < replicated.mesh().num_axes(); ++axis) {
    std::vector<Placements> longer;
    for (const Placements& sequence : sequences) {
      for (const Placement& placement : all) {
        longer.push_back(sequence);
        longer.back().push_back(placement);
      }
    }
    sequences = std::move(longer);
  }
  std::vector<Layout> layouts;
  for (const Placements& sequence : sequences) {
    if (auto layout = replicated.With(sequence); layout.ok()) {
      layouts.push_back(*std::move(layout));
    }
  }
  return layouts;
}

// Appends the combinations of one tensor on one mesh.
class Appender {
 public:
  Appender(const Layout& replicated, std::vector<SweepCase>& cases)
      : replicated_(replicated), cases_(cases) {}

  void AppendAllPairs() {
    const std::vector<Layout> layouts = AllLayouts(replicated_);
    for (const Layout& from : layouts) {
      for (const Layout& to : layouts) {
        if (from != to) Append(from, to);
      }
    }
  }

  void AppendPair(const std::string& from, const std::string& to) {
    const int num_axes = replicated_.mesh().num_axes();
    const auto source = replicated_.With(ForAllAxes(from, num_axes));
    const auto target = replicated_.With(ForAllAxes(to, num_axes));
    if (source.ok() && target.ok()) return Append(*source, *target);
    SweepRow row = RowOf(from, to);
    row.skipped =
        std::string((source.ok() ? target : source).status().message());
    cases_.push_back({std::move(row), std::nullopt});
  }

 private:
  void Append(const Layout& from, const Layout& to) {
    cases_.push_back({RowOf(from.PlacementsToString(), to.PlacementsToString()),
                      Redistribution{from, to}});
  }

  SweepRow RowOf(std::string from, std::string to) const {
    SweepRow row;
    row.mesh = replicated_.mesh().ToString();
    row.tensor = replicated_.meta().ToString();
    row.from = std::move(from);
    row.to = std::move(to);
    return row;
  }

  const Layout& replicated_;
  std::vector<SweepCase>& cases_;
};

absl::Status AppendCases(const SweepSpec& spec, const DeviceMesh& mesh,
                         const TensorMeta& meta,
                         std::vector<SweepCase>& cases) {
  TESSERA_ASSIGN_OR_RETURN(
      const Layout replicated,
      Layout::Create(meta, mesh, Placements(mesh.num_axes())));
  Appender appender(replicated, cases);
  if (spec.all_pairs) appender.AppendAllPairs();
  for (const std::string& from : spec.from) {
    for (const std::string& to : spec.to) appender.AppendPair(from, to);
  }
  return absl::OkStatus();
}

// One row for all layouts of a tensor that cannot be.
SweepCase NoSuchTensor(const SweepSpec& spec, const DeviceMesh& mesh,
                       const Shape& shape, const absl::Status& why) {
  SweepRow row;
  row.mesh = mesh.ToString();
  row.tensor = absl::StrCat(DTypeName(spec.dtype), shape.ToString());
  row.skipped = std::string(why.message());
  return {std::move(row), std::nullopt};
}

std::vector<std::optional<int64_t>> SizesOf(const SweepSpec& spec) {
  if (spec.bytes.empty()) return {std::nullopt};
  return {spec.bytes.begin(), spec.bytes.end()};
}

}  // namespace

absl::StatusOr<std::vector<SweepCase>> SweepCases(const SweepSpec& spec) {
  TESSERA_RETURN_IF_ERROR(Check(spec));
  std::vector<SweepCase> cases;
  for (const DeviceMesh& mesh : spec.meshes) {
    for (const Shape& shape : spec.shapes) {
      for (const std::optional<int64_t> bytes : SizesOf(spec)) {
        const auto meta = TensorOf(spec, shape, bytes);
        if (meta.ok()) {
          TESSERA_RETURN_IF_ERROR(AppendCases(spec, mesh, *meta, cases));
        } else {
          cases.push_back(NoSuchTensor(spec, mesh, shape, meta.status()));
        }
      }
    }
  }
  return cases;
}

}  // namespace tessera::internal
