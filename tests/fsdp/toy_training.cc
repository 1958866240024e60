#include "tests/fsdp/toy_training.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/dbuffer/buffer_group.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/fsdp/data_parallel_axes.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/testing/gradient_oracle.h"
#include "tests/optimizer_reference.h"

namespace tessera::testing {
namespace {

// A well-mixed function of one integer (the finalizer of SplitMix64).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Hash(std::initializer_list<int64_t> values) {
  uint64_t hash = 0;
  for (int64_t value : values) hash = Mix(hash ^ static_cast<uint64_t>(value));
  return hash;
}

int64_t Elements(const ToyParameter& parameter) {
  int64_t product = 1;
  for (int64_t extent : parameter.extents) product *= extent;
  return product;
}

double ReadElement(const TensorView& view, int64_t i) {
  return VisitDType(view.dtype(), [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<double>(view.as<T>()[i]);
    } else {
      return static_cast<double>(static_cast<float>(view.as<T>()[i]));
    }
  });
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

struct Dtypes {
  DType wire;
  DType accumulation;
  DType main_weight;
};

Dtypes DtypesOf(const ToyRun& run) {
  const DType wide = run.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const DType accumulation = run.precision.accumulation.value_or(wide);
  return {run.precision.wire.value_or(run.dtype), accumulation,
          run.precision.main_weight.value_or(accumulation)};
}

// A dense buffer of one dtype.
class Values {
 public:
  Values(DType dtype, int64_t elements)
      : bytes_(elements * SizeOf(dtype)), dtype_(dtype), elements_(elements) {}
  TensorView view() {
    return TensorView::Flat(bytes_.data(), dtype_, elements_);
  }
  std::vector<double> ToDoubles() {
    std::vector<double> doubles;
    for (int64_t i = 0; i < elements_; ++i) {
      doubles.push_back(ReadWide(view(), i));
    }
    return doubles;
  }

 private:
  std::vector<std::byte> bytes_;
  DType dtype_;
  int64_t elements_;
};

template <typename Visit>
void ForEachParameter(const ToyRun& run, Visit visit) {
  for (int u = 0; u < static_cast<int>(run.units.size()); ++u) {
    for (int p = 0; p < static_cast<int>(run.units[u].parameters.size()); ++p) {
      visit(u, p, Elements(run.units[u].parameters[p]));
    }
  }
}

ToyValues EmptyValues(const ToyRun& run) {
  ToyValues values;
  for (const ToyUnit& unit : run.units) {
    values.emplace_back(unit.parameters.size());
  }
  return values;
}

// How one unit of a run is data-parallel.
struct Parallel {
  DeviceMesh mesh;
  internal::DataParallelAxes axes;
  UnitPlacements placements;
  double grad_divisor;

  // The rank's place in the group that shares its gradients: row-major.
  int PlaceOf(int rank) const {
    const MeshCoords coords = *mesh.CoordsOf(rank);
    int place = 0;
    for (int axis : axes.axes()) {
      place = place * mesh.axis(axis).size + coords[axis];
    }
    return place;
  }

  GradientOracle::Options OracleOptions(const ToyRun& run) const {
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
};

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

// The row-major indices into the whole tensor of what a rank holds, in order.
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

}  // namespace

std::string ToyRun::ToString() const {
  return absl::StrCat(
      placements.has_value() ? placements->ToString() : strategy, " on ", mesh,
      axes.empty() ? "" : absl::StrCat(" along ", absl::StrJoin(axes, ",")),
      ", ", microbatches, " microbatches, zero by ",
      zero_grad == ZeroGrad::kFill ? "fill" : "release", ", ",
      reduction == GradientReduction::kMean ? "mean" : "sum", "/", grad_divisor,
      ", scaled by ", loss_scale, " and ", precision.wire_pre_scale, ", ",
      DTypeName(dtype), ", ",
      streams == CpuStreams::kWorker ? "worker" : "inline", " streams, ",
      release == ReleaseWeights::kAfterForward    ? "release after forward"
      : release == ReleaseWeights::kAfterBackward ? "release after backward"
                                                  : "never release",
      ", prefetch ", overlap.prefetch, ", in flight ",
      overlap.gradients_in_flight, ", streams ",
      overlap.streams == CommunicationStreams::kShared ? "shared" : "separate",
      ", zero every ", steps_per_zeroing, " steps");
}

bool ToyRun::ZeroesAfter(int step) const {
  return (step + 1) % steps_per_zeroing == 0;
}

UnitPlacements ToyRun::Placements() const {
  if (placements.has_value()) return *placements;
  return *PlacementsFor(strategy, static_cast<int>(AxesOf(*this).size()));
}

std::vector<ToyUnit> DefaultToyUnits() {
  return {{"root", -1, {{"embedding", {5, 3}}, {"norm", {3}}}},
          {"block0", 0, {{"weight", {7, 11}}, {"bias", {7}}}},
          {"block1", 0, {{"weight", {13, 9}}, {"bias", {1}}}}};
}

std::vector<ToyUnit> DeepToyUnits() {
  std::vector<ToyUnit> units = DefaultToyUnits();
  units.push_back({"experts1", 2, {{"up", {3, 5, 2}}, {"down", {31}}}});
  units.push_back({"block2", 0, {{"weight", {17, 2}}}});
  units.push_back({"experts2", 4, {{"up", {2, 19}}}});
  for (int i = 3; i < 6; ++i) {
    units.push_back({absl::StrCat("block", i), 0, {{"weight", {i, 7}}}});
  }
  return units;
}

std::vector<OverlapOptions> ManyOverlaps() {
  std::vector<OverlapOptions> overlaps;
  for (int prefetch : {0, 1, 2, 3}) {
    for (int in_flight : {1, 2, 3}) {
      for (CommunicationStreams streams :
           {CommunicationStreams::kSeparate, CommunicationStreams::kShared}) {
        overlaps.push_back({prefetch, in_flight, streams});
      }
    }
  }
  return overlaps;
}

std::vector<UnitPlacements> LegalTriples(int num_axes) {
  std::vector<std::string> axes;
  for (int i = 0; i < num_axes; ++i) axes.push_back(absl::StrCat("axis", i));
  const std::vector<std::string> cut_order(axes.rbegin(), axes.rend());
  // A list whose last `num_flat` axes are Flat.
  const auto list = [&](int num_flat, BufferPlacement other) {
    BufferPlacements placements(num_axes - num_flat, other);
    placements.resize(num_axes, BufferPlacement::Flat());
    return placements;
  };
  std::vector<UnitPlacements> triples;
  for (int parameter = 0; parameter <= num_axes; ++parameter) {
    for (int gradient = 0; gradient <= num_axes; ++gradient) {
      for (int optimizer = 0; optimizer <= num_axes; ++optimizer) {
        const UnitPlacements triple = {
            list(parameter, BufferPlacement::Replicate()),
            list(gradient, BufferPlacement::Partial()),
            list(optimizer, BufferPlacement::Replicate())};
        if (!ValidatePlacements(triple, axes, cut_order).ok()) continue;
        triples.push_back(triple);
      }
    }
  }
  return triples;
}

double InitialWeight(int unit, int parameter, int64_t element) {
  return static_cast<double>(Hash({unit, parameter, element}) % 2001) / 1000.0 -
         1.0;
}

double ToyGradient(const ToyRun& run, const GradientPlace& at, double weight) {
  const uint64_t hash = Hash(
      {at.rank, at.step, at.microbatch, at.unit, at.parameter, at.element});
  if (run.integer_gradients) return static_cast<double>(hash % 17) - 8.0;
  const double noise = static_cast<double>(hash % 20001) / 10000.0 - 1.0;
  return noise + 0.25 * weight;
}

namespace {

// Hyperparameters of a run's parameters: those with several dims, then those
// with one.
std::vector<SgdHyperparameters> SgdGroups(const ToyRun& run) {
  const double rate = run.learning_rate;
  switch (run.optimizer) {
    case ToyOptimizer::kMomentum:
      return {{.learning_rate = rate,
               .momentum = 0.9,
               .dampening = 0.25,
               .weight_decay = 0.01},
              {.learning_rate = rate / 3, .momentum = 0.5}};
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

// What trains the elements of one parameter, one by one.
template <typename T>
class ReferenceOptimizer {
 public:
  ReferenceOptimizer(const ToyRun& run, const ToyParameter& parameter)
      : is_adamw_(run.optimizer == ToyOptimizer::kAdamW),
        sgd_(SgdGroups(run)[GroupOf(parameter)]),
        adamw_(AdamWGroups(run)[GroupOf(parameter)]),
        first_(Elements(parameter)),
        second_(Elements(parameter)) {}

  void Step(T* weight, const TensorView& gradient) {
    ++steps_;
    for (int64_t i = 0; i < gradient.num_elements(); ++i) {
      const T g = static_cast<T>(ReadWide(gradient, i));
      if (is_adamw_) {
        AdamWReference<T>(weight[i], g, first_[i], second_[i],
                          {.learning_rate = adamw_.learning_rate,
                           .beta1 = adamw_.beta1,
                           .beta2 = adamw_.beta2,
                           .epsilon = adamw_.epsilon,
                           .weight_decay = adamw_.weight_decay,
                           .step = steps_});
      } else {
        SgdReference<T>(weight[i], g, first_[i],
                        {.learning_rate = sgd_.learning_rate,
                         .momentum = sgd_.momentum,
                         .dampening = sgd_.dampening,
                         .weight_decay = sgd_.weight_decay,
                         .nesterov = sgd_.nesterov,
                         .first = steps_ == 1});
      }
    }
  }

 private:
  const bool is_adamw_;
  const SgdHyperparameters sgd_;
  const AdamWHyperparameters adamw_;
  std::vector<T> first_;
  std::vector<T> second_;
  int64_t steps_ = 0;
};

// Room for the values of every step.
ToyHistory EmptyHistory(const ToyRun& run) {
  ToyHistory history;
  history.weights.assign(run.steps + 1, EmptyValues(run));
  history.gradients.assign(run.steps, EmptyValues(run));
  ForEachParameter(run, [&](int u, int p, int64_t n) {
    for (ToyValues& values : history.weights) values[u][p].resize(n);
    for (ToyValues& values : history.gradients) values[u][p].resize(n);
  });
  return history;
}

// Writes values[i] to whole[indices[i]].
void Spread(const std::vector<double>& values,
            const std::vector<int64_t>& indices, std::vector<double>& whole) {
  for (size_t i = 0; i < indices.size(); ++i) whole[indices[i]] = values[i];
}

// By element of the whole parameter: a rank of its data-parallel group that
// holds it in the optimizer placements, by its place there.
std::vector<int> OwnersOf(const ToyRun& run, const Parallel& parallel, int u,
                          int p) {
  const ToyUnit& unit = run.units[u];
  const auto num_flat = [](const BufferPlacements& placements) {
    return static_cast<int>(absl::c_count_if(
        placements, [](BufferPlacement one) { return one.is_flat(); }));
  };
  const UnitPlacements& placements = parallel.placements;
  const Dtypes dtypes = DtypesOf(run);
  BufferGroup::Options options = {
      .axes = parallel.axes.axes(),
      .cut_order = parallel.axes.cut_axes(),
      .num_flat_axes = std::max({num_flat(placements.parameter),
                                 num_flat(placements.gradient),
                                 num_flat(placements.optimizer)}),
      .narrowest = std::min(
          {run.dtype, dtypes.wire, dtypes.accumulation, dtypes.main_weight},
          [](DType a, DType b) { return SizeOf(a) < SizeOf(b); })};
  std::vector<BufferGroup::Tensor> tensors;
  for (const ToyParameter& parameter : unit.parameters) {
    tensors.push_back(
        {parameter.name, LayoutOf(parallel.mesh, run.dtype, parameter)});
  }
  const auto group = *BufferGroup::Create(parallel.mesh, std::move(tensors),
                                          std::move(options));
  const Layout layout =
      *group->TensorLayout(p, run.dtype, placements.optimizer);
  std::vector<int> owners(Elements(unit.parameters[p]));
  for (int rank = 0; rank < parallel.mesh.size(); ++rank) {
    for (int64_t index : IndicesOf(layout, rank)) {
      owners[index] = parallel.PlaceOf(rank);
    }
  }
  return owners;
}

// What becomes of the elements `indices` of one parameter, which the ranks of
// one data-parallel group hold.
void TrainElements(const ToyRun& run, const Parallel& parallel, int u, int p,
                   const std::vector<int64_t>& indices, ToyHistory& history) {
  const Dtypes dtypes = DtypesOf(run);
  const auto n = static_cast<int64_t>(indices.size());
  GradientOracle::Options options = parallel.OracleOptions(run);
  const std::vector<int> owners = OwnersOf(run, parallel, u, p);
  for (int64_t index : indices) options.owners.push_back(owners[index]);
  GradientOracle oracle(std::move(options), n);
  Values main(dtypes.main_weight, n);
  for (int64_t i = 0; i < n; ++i) {
    WriteElement(main.view(), i, InitialWeight(u, p, indices[i]));
  }
  Spread(main.ToDoubles(), indices, history.weights[0][u][p]);
  ReferenceOptimizer<float> f32(run, run.units[u].parameters[p]);
  ReferenceOptimizer<double> f64(run, run.units[u].parameters[p]);
  for (int step = 0; step < run.steps; ++step) {
    Values model(run.dtype, n);
    CastElements(model.view(), main.view());
    for (int m = 0; m < run.microbatches; ++m) {
      std::vector<Values> contributions;
      std::vector<TensorView> views;
      for (int rank = 0; rank < oracle.num_ranks(); ++rank) {
        contributions.emplace_back(dtypes.wire, n);
        for (int64_t i = 0; i < n; ++i) {
          WriteElement(contributions.back().view(), i,
                       ToyGradient(run, {rank, step, m, u, p, indices[i]},
                                   ReadWide(model.view(), i)));
        }
      }
      for (Values& values : contributions) views.push_back(values.view());
      oracle.Add(views);
    }
    oracle.Finalize();
    if (dtypes.main_weight == DType::kF32) {
      f32.Step(main.view().as<float>(), oracle.gradient());
    } else {
      f64.Step(main.view().as<double>(), oracle.gradient());
    }
    std::vector<double> gradient;
    for (int64_t i = 0; i < n; ++i) {
      gradient.push_back(ReadWide(oracle.gradient(), i));
    }
    Spread(gradient, indices, history.gradients[step][u][p]);
    Spread(main.ToDoubles(), indices, history.weights[step + 1][u][p]);
    if (run.ZeroesAfter(step)) oracle.Zero();
  }
}

}  // namespace

ToyHistory OracleHistory(const ToyRun& run) {
  ToyHistory history = EmptyHistory(run);
  ForEachParameter(run, [&](int u, int p, int64_t) {
    const ToyUnit& unit = run.units[u];
    const Parallel parallel = ParallelOf(run, unit);
    const Layout layout =
        LayoutOf(parallel.mesh, run.dtype, unit.parameters[p]);
    // One group for each place along the other axes.
    for (int rank = 0; rank < parallel.mesh.size(); ++rank) {
      if (parallel.PlaceOf(rank) != 0) continue;
      TrainElements(run, parallel, u, p, IndicesOf(layout, rank), history);
    }
  });
  return history;
}

ToyHistory BigBatchHistory(const ToyRun& run) {
  ToyHistory history = EmptyHistory(run);
  ForEachParameter(run, [&](int u, int p, int64_t n) {
    const Parallel parallel = ParallelOf(run, run.units[u]);
    const int ranks = static_cast<int>(parallel.axes.num_ranks());
    const double scale =
        (run.reduction == GradientReduction::kMean ? 1.0 / ranks : 1.0) /
        parallel.grad_divisor;
    std::vector<double> weight(n);
    for (int64_t i = 0; i < n; ++i) weight[i] = InitialWeight(u, p, i);
    history.weights[0][u][p] = weight;
    for (int step = 0; step < run.steps; ++step) {
      std::vector<double> gradient(n, 0.0);
      for (int64_t i = 0; i < n; ++i) {
        for (int m = 0; m < run.microbatches; ++m) {
          for (int rank = 0; rank < ranks; ++rank) {
            gradient[i] +=
                ToyGradient(run, {rank, step, m, u, p, i}, weight[i]);
          }
        }
        gradient[i] *= scale;
        if (step > 0 && !run.ZeroesAfter(step - 1)) {
          gradient[i] += history.gradients[step - 1][u][p][i];
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        weight[i] -= run.learning_rate * gradient[i];
      }
      history.gradients[step][u][p] = gradient;
      history.weights[step + 1][u][p] = weight;
    }
  });
  return history;
}

absl::StatusOr<std::unique_ptr<ToyRank>> ToyRank::Create(const ToyRun& run,
                                                         CommSet& comms,
                                                         Stream& stream) {
  FsdpOptions options;
  TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse(run.mesh));
  auto toy = std::unique_ptr<ToyRank>(
      new ToyRank(run, options.mesh, comms.rank(), stream));
  options.data_parallel_axes = run.axes;
  options.cut_order = run.cut_order;
  options.placements = run.Placements();
  options.precision = run.precision;
  options.reduction = run.reduction;
  options.grad_divisor = run.grad_divisor;
  options.overlap = run.overlap;
  options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
  TESSERA_ASSIGN_OR_RETURN(toy->context_,
                           Context::Create(options, comms.world(), stream));
  for (const ToyUnit& unit : run.units) {
    UnitOptions unit_options;
    unit_options.release = run.release;
    unit_options.gradient_hooks = run.gradient_hooks;
    unit_options.data_parallel_axes = unit.axes;
    unit_options.placements = unit.placements;
    unit_options.grad_divisor = unit.grad_divisor;
    if (unit.parent >= 0) unit_options.parent = toy->units_[unit.parent];
    UnitBuilder builder = toy->context_->NewUnit(unit.name, unit_options);
    for (const ToyParameter& parameter : unit.parameters) {
      builder.Add(parameter.name, LayoutOf(toy->mesh_, run.dtype, parameter));
    }
    TESSERA_ASSIGN_OR_RETURN(Unit * built, builder.Build());
    toy->units_.push_back(built);
  }
  TESSERA_RETURN_IF_ERROR(toy->context_->Prepare());
  TESSERA_RETURN_IF_ERROR(toy->context_->set_loss_scale(run.loss_scale));

  absl::Status status;
  ForEachParameter(run, [&](int u, int p, int64_t) {
    const Layout& layout = toy->units_[u]->parameter_layout(p);
    const std::vector<int64_t> indices = IndicesOf(layout, toy->rank_);
    const auto n = static_cast<int64_t>(indices.size());
    Values values(DtypesOf(run).main_weight, n);
    for (int64_t i = 0; i < n; ++i) {
      WriteElement(values.view(), i, InitialWeight(u, p, indices[i]));
    }
    status.Update(toy->units_[u]->LoadWeight(
        p,
        TensorView(values.view().data(),
                   *TensorMeta::Create(values.view().dtype(),
                                       layout.LocalMeta(toy->rank_).shape()))));
  });
  TESSERA_RETURN_IF_ERROR(status);
  return toy;
}

absl::Status ToyRank::OpenForward(int u, const ToyValues& expected) {
  units_[u]->BeforeForward();
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    const Layout& layout = units_[u]->parameter_layout(p);
    if (weight.meta() != layout.LocalMeta(rank_)) {
      return absl::InternalError(
          absl::StrCat("weight is ", weight.meta().ToString()));
    }
    const MemoryRange reads[] = {weight};
    TESSERA_RETURN_IF_ERROR(Launch(
        {.name = "check weights", .reads = reads},
        [u, p, weight, indices = IndicesOf(layout, rank_),
         &expected]() -> absl::Status {
          const std::vector<double>& wide = expected[u][p];
          for (int64_t i = 0; i < weight.num_elements(); ++i) {
            const double want = wide[indices[i]];
            Values rounded(weight.dtype(), 1);
            WriteElement(rounded.view(), 0, want);
            if (SameBits(ReadWide(weight, i), ReadWide(rounded.view(), 0))) {
              continue;
            }
            return absl::InternalError(
                absl::StrCat("gathered weight ", u, ".", p, "[", i, "] is ",
                             ReadWide(weight, i), ", want ", want));
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::Launch(const LaunchDescriptor& descriptor,
                             LaunchBody body) {
  return run_.launch == nullptr
             ? stream_.Launch(descriptor, std::move(body))
             : run_.launch(stream_, descriptor, std::move(body));
}

absl::Status ToyRank::UseWeights(int u) {
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    const MemoryRange reads[] = {weight};
    TESSERA_RETURN_IF_ERROR(Launch({.name = "use weights", .reads = reads},
                                   [] { return absl::OkStatus(); }));
  }
  return absl::OkStatus();
}

std::vector<int> ToyRank::ChildrenOf(int u) const {
  std::vector<int> children;
  for (int c = 0; c < static_cast<int>(units_.size()); ++c) {
    if (run_.units[c].parent == u) children.push_back(c);
  }
  return children;
}

absl::Status ToyRank::ForwardUnit(int u, const ToyValues& expected) {
  TESSERA_RETURN_IF_ERROR(OpenForward(u, expected));
  for (int child : ChildrenOf(u)) {
    TESSERA_RETURN_IF_ERROR(ForwardUnit(child, expected));
  }
  TESSERA_RETURN_IF_ERROR(UseWeights(u));
  units_[u]->AfterForward();
  return absl::OkStatus();
}

absl::Status ToyRank::Forward(const ToyValues& expected) {
  for (int root : ChildrenOf(-1)) {
    TESSERA_RETURN_IF_ERROR(ForwardUnit(root, expected));
  }
  return context_->status();
}

absl::Status ToyRank::WriteGradients(int u, int step, int microbatch) {
  const int place = ParallelOf(run_, run_.units[u]).PlaceOf(rank_);
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                             units_[u]->grad(p, GradientWrite::kOverwrite));
    const MemoryRange reads[] = {weight};
    const MemoryRange writes[] = {gradient};
    TESSERA_RETURN_IF_ERROR(Launch(
        {.name = "toy backward", .reads = reads, .writes = writes},
        [this, place, u, p, step, microbatch, weight, gradient,
         scale = context_->loss_scale(),
         indices = IndicesOf(units_[u]->parameter_layout(p), rank_)] {
          for (int64_t i = 0; i < gradient.num_elements(); ++i) {
            WriteElement(
                gradient, i,
                scale * ToyGradient(run_,
                                    {place, step, microbatch, u, p, indices[i]},
                                    ReadWide(weight, i)));
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::BackwardUnit(int u, int step, int microbatch,
                                   std::optional<bool> is_last) {
  units_[u]->BeforeBackward();
  TESSERA_RETURN_IF_ERROR(UseWeights(u));
  const std::vector<int> children = ChildrenOf(u);
  for (auto it = children.rbegin(); it != children.rend(); ++it) {
    TESSERA_RETURN_IF_ERROR(BackwardUnit(*it, step, microbatch, is_last));
  }
  TESSERA_RETURN_IF_ERROR(WriteGradients(u, step, microbatch));
  units_[u]->AfterBackward(is_last);
  return absl::OkStatus();
}

absl::Status ToyRank::Backward(int step, int microbatch,
                               std::optional<bool> is_last) {
  const std::vector<int> roots = ChildrenOf(-1);
  for (auto it = roots.rbegin(); it != roots.rend(); ++it) {
    TESSERA_RETURN_IF_ERROR(BackwardUnit(*it, step, microbatch, is_last));
  }
  return context_->status();
}

absl::Status ToyRank::CheckPiece(const ShardedTensor& tensor,
                                 const std::vector<double>& expected,
                                 absl::string_view what) {
  const std::vector<int64_t> indices = IndicesOf(tensor.layout(), rank_);
  const TensorView local = tensor.local();
  Values values(local.dtype(), local.num_elements());
  const TensorView piece = values.view();
  TESSERA_RETURN_IF_ERROR(
      stream_.device().kernels().CopyToHost(stream_, piece.data(), local));
  TESSERA_RETURN_IF_ERROR(context_->Synchronize());
  for (int64_t i = 0; i < piece.num_elements(); ++i) {
    const double want = expected[indices[i]];
    if (SameBits(ReadWide(piece, i), want)) continue;
    return absl::InternalError(absl::StrCat(
        what, "[", indices[i], "] is ", ReadWide(piece, i), ", want ", want));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::TrainStep(int step, const ToyValues& expected_weights) {
  for (int m = 0; m < run_.microbatches; ++m) {
    TESSERA_RETURN_IF_ERROR(Forward(expected_weights));
    TESSERA_RETURN_IF_ERROR(Backward(step, m, m + 1 == run_.microbatches));
  }
  if (optimizer_step_ == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(optimizer_step_, MakeToyStep(run_, *context_));
  }
  TESSERA_RETURN_IF_ERROR(optimizer_step_());
  return run_.ZeroesAfter(step) ? context_->ZeroGradients(run_.zero_grad)
                                : absl::OkStatus();
}

absl::Status ToyRank::CheckGradients(const ToyValues& expected) {
  for (size_t u = 0; u < units_.size(); ++u) {
    for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(ShardedTensor tensor, units_[u]->main_grad(p));
      TESSERA_RETURN_IF_ERROR(CheckPiece(tensor, expected[u][p],
                                         absl::StrCat("gradient ", u, ".", p)));
    }
  }
  return absl::OkStatus();
}

absl::Status ToyRank::CheckWeights(const ToyValues& expected) {
  for (size_t u = 0; u < units_.size(); ++u) {
    for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
      TESSERA_ASSIGN_OR_RETURN(ShardedTensor tensor, units_[u]->main_weight(p));
      TESSERA_RETURN_IF_ERROR(CheckPiece(
          tensor, expected[u][p], absl::StrCat("main weight ", u, ".", p)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ToyStep> MakeToyStep(const ToyRun& run, Context& context) {
  const auto choose = [&run](absl::string_view unit_name,
                             absl::string_view name) {
    for (const ToyUnit& unit : run.units) {
      if (unit.name != unit_name) continue;
      for (const ToyParameter& parameter : unit.parameters) {
        if (parameter.name == name) return GroupOf(parameter);
      }
    }
    return -1;
  };
  const auto step_of = [](auto optimizer) -> ToyStep {
    const auto shared =
        std::make_shared<decltype(optimizer)>(std::move(optimizer));
    return [shared] { return shared->Step(); };
  };
  if (run.optimizer == ToyOptimizer::kAdamW) {
    TESSERA_ASSIGN_OR_RETURN(
        AdamWOptimizer optimizer,
        AdamWOptimizer::Create(context, AdamWGroups(run), choose));
    return step_of(std::move(optimizer));
  }
  TESSERA_ASSIGN_OR_RETURN(
      SgdOptimizer optimizer,
      SgdOptimizer::Create(context, SgdGroups(run), choose));
  return step_of(std::move(optimizer));
}

absl::Status TrainAndCompare(const ToyRun& run, const ToyHistory& expected) {
  return RunLocalRanks(
      DeviceMesh::Parse(run.mesh)->size(),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ToyRank> toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        TESSERA_ASSIGN_OR_RETURN(const ToyStep optimizer_step,
                                 MakeToyStep(run, toy->context()));
        for (int step = 0; step < run.steps; ++step) {
          for (int m = 0; m < run.microbatches; ++m) {
            Microbatch scope = toy->context().OpenMicrobatch(
                {.is_last = m + 1 == run.microbatches});
            TESSERA_RETURN_IF_ERROR(toy->Forward(expected.weights[step]));
            TESSERA_RETURN_IF_ERROR(toy->Backward(step, m));
            TESSERA_RETURN_IF_ERROR(scope.Finish());
          }
          TESSERA_RETURN_IF_ERROR(
              toy->CheckGradients(expected.gradients[step]));
          TESSERA_RETURN_IF_ERROR(optimizer_step());
          TESSERA_RETURN_IF_ERROR(
              toy->CheckWeights(expected.weights[step + 1]));
          if (!run.ZeroesAfter(step)) continue;
          TESSERA_RETURN_IF_ERROR(toy->context().ZeroGradients(run.zero_grad));
        }
        return toy->context().Synchronize();
      },
      {.device = {.streams = run.streams}});
}

}  // namespace tessera::testing
