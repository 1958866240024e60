#include "tests/fsdp/toy_parts.h"

#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>
#include <utility>

namespace tessera::testing::toy {
namespace {

double ReadElement(const TensorView& view, int64_t i) {
  return VisitDType(view.dtype(), [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<double>(view.as<T>()[i]);
    } else {
      return static_cast<double>(static_cast<float>(view.as<T>()[i]));
    }
  });
}

}  // namespace

int64_t Elements(const ToyParameter& parameter) {
  int64_t product = 1;
  for (int64_t extent : parameter.extents) product *= extent;
  return product;
}

double ReadWide(const TensorView& view, int64_t i) {
  return view.dtype() == DType::kF64 ? view.as<double>()[i]
                                     : ReadElement(view, i);
}

void WriteElement(const TensorView& view, int64_t i, double value) {
  VisitDType(view.dtype(), [&]<typename T>() {
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
      view.as<T>()[i] = static_cast<T>(value);
    } else {
      view.as<T>()[i] = T(static_cast<float>(value));
    }
  });
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

Dtypes DtypesOf(const ToyRun& run) {
  const DType wide = run.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const DType accumulation = run.precision.accumulation.value_or(wide);
  return {run.precision.wire.value_or(run.dtype), accumulation,
          run.precision.main_weight.value_or(accumulation)};
}

ToyValues EmptyValues(const ToyRun& run) {
  ToyValues values;
  for (const ToyUnit& unit : run.units) {
    values.emplace_back(unit.parameters.size());
  }
  return values;
}

int Parallel::PlaceOf(int rank) const {
  const MeshCoords coords = *mesh.CoordsOf(rank);
  int place = 0;
  for (int axis : axes.axes()) {
    place = place * mesh.axis(axis).size + coords[axis];
  }
  return place;
}

GradientOracle::Options Parallel::OracleOptions(const ToyRun& run) const {
  const Dtypes dtypes = DtypesOf(run);
  GradientOracle::Options options = {.axis_sizes = {},
                                     .cut_order = {},
                                     .placements = placements,
                                     .wire = dtypes.wire,
                                     .accumulation = dtypes.accumulation,
                                     .reduction = run.reduction,
                                     .grad_divisor = grad_divisor};
  for (int axis : axes.axes()) {
    options.axis_sizes.push_back(mesh.axis(axis).size);
  }
  for (const std::string& name : axes.cut_names()) {
    options.cut_order.push_back(static_cast<int>(
        std::find(axes.names().begin(), axes.names().end(), name) -
        axes.names().begin()));
  }
  return options;
}

std::vector<std::string> AxesOf(const ToyRun& run) {
  if (!run.axes.empty()) return run.axes;
  const DeviceMesh mesh = *DeviceMesh::Parse(run.mesh);
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return names;
}

Parallel ParallelOf(const ToyRun& run, const ToyUnit& unit) {
  DeviceMesh mesh = *DeviceMesh::Parse(run.mesh);
  const bool own = unit.axes.has_value();
  auto axes = internal::DataParallelAxes::Create(
      mesh, own ? *unit.axes : AxesOf(run),
      own ? std::vector<std::string>() : run.cut_order);
  return {std::move(mesh), *std::move(axes),
          unit.placements.has_value() ? *unit.placements : run.Placements(),
          unit.grad_divisor.value_or(run.grad_divisor)};
}

Layout LayoutOf(const DeviceMesh& mesh, DType dtype,
                const ToyParameter& parameter) {
  const TensorMeta meta = *TensorMeta::Create(dtype, parameter.extents);
  const std::vector<Placement> replicated(mesh.num_axes());
  const Layout layout = *Layout::Create(meta, mesh, replicated);
  return parameter.layout.empty() ? layout : *layout.With(parameter.layout);
}

std::vector<int64_t> IndicesOf(const Layout& layout, int rank) {
  const Region region = layout.RegionOf(rank);
  const int64_t begin = region.flat.has_value() ? region.flat->begin : 0;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < region.num_elements(); ++i) {
    int64_t rest = begin + i;  // in the box
    int64_t index = 0;
    int64_t stride = 1;
    for (size_t d = region.box.size(); d-- > 0;) {
      index += (region.box[d].begin + rest % region.box[d].size()) * stride;
      rest /= region.box[d].size();
      stride *= layout.shape().extent(static_cast<int>(d));
    }
    indices.push_back(index);
  }
  return indices;
}

std::vector<SgdHyperparameters> SgdGroups(const ToyRun& run) {
  const double rate = run.learning_rate;
  switch (run.optimizer) {
    case ToyOptimizer::kMomentum:
      return {{.learning_rate = rate,
               .momentum = 0.9,
               .dampening = 0.25,
               .weight_decay = 0.01},
              {.learning_rate = rate / 3, .momentum = 0.5}};
    case ToyOptimizer::kWhole:
      return {{.learning_rate = rate}, {.learning_rate = rate / 3}};
    case ToyOptimizer::kNesterov:
      return {{.learning_rate = rate,
               .momentum = 0.9,
               .weight_decay = 0.01,
               .nesterov = true},
              {.learning_rate = rate}};
    default:
      return {{.learning_rate = rate}, {.learning_rate = rate}};
  }
}

std::vector<AdamWHyperparameters> AdamWGroups(const ToyRun& run) {
  return {{.learning_rate = run.learning_rate, .weight_decay = 0.1},
          {.learning_rate = run.learning_rate / 3,
           .beta1 = 0.8,
           .weight_decay = 0.0}};
}

int GroupOf(const ToyParameter& parameter) {
  return parameter.extents.size() == 1 ? 1 : 0;
}

}  // namespace tessera::testing::toy
