#include "tests/fsdp/toy_training.h"

#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/fsdp/optimizer.h"
#include "tessera/testing/gradient_oracle.h"

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

std::vector<int> AxisSizes(const DeviceMesh& mesh) {
  std::vector<int> sizes;
  for (const MeshAxis& axis : mesh.axes()) sizes.push_back(axis.size);
  return sizes;
}

}  // namespace

std::string ToyRun::ToString() const {
  return absl::StrCat(
      strategy, " on ", mesh, ", ", microbatches, " microbatches, zero by ",
      zero_grad == ZeroGrad::kFill ? "fill" : "release", ", ",
      reduction == GradientReduction::kMean ? "mean" : "sum", "/", grad_divisor,
      ", ", DTypeName(dtype), ", ",
      streams == CpuStreams::kWorker ? "worker" : "inline", " streams, ",
      release == ReleaseWeights::kAfterForward ? "release after forward"
                                               : "release after backward");
}

std::vector<ToyUnit> DefaultToyUnits() {
  return {{"root", -1, {{"embedding", {5, 3}}, {"norm", {3}}}},
          {"block0", 0, {{"weight", {7, 11}}, {"bias", {7}}}},
          {"block1", 0, {{"weight", {13, 9}}, {"bias", {1}}}}};
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

ToyHistory OracleHistory(const ToyRun& run) {
  const DeviceMesh mesh = *DeviceMesh::Parse(run.mesh);
  const Dtypes dtypes = DtypesOf(run);
  const GradientOracle::Options options = {
      .axis_sizes = AxisSizes(mesh),
      .cut_order = {},
      .placements = *PlacementsFor(run.strategy, mesh.num_axes()),
      .wire = dtypes.wire,
      .accumulation = dtypes.accumulation,
      .reduction = run.reduction,
      .grad_divisor = run.grad_divisor};
  ToyHistory history;
  history.weights.assign(run.steps + 1, EmptyValues(run));
  history.gradients.assign(run.steps, EmptyValues(run));
  ForEachParameter(run, [&](int u, int p, int64_t n) {
    GradientOracle oracle(options, n);
    Values main(dtypes.main_weight, n);
    for (int64_t i = 0; i < n; ++i) {
      WriteElement(main.view(), i, InitialWeight(u, p, i));
    }
    history.weights[0][u][p] = main.ToDoubles();
    for (int step = 0; step < run.steps; ++step) {
      Values model(run.dtype, n);
      CastElements(model.view(), main.view());
      for (int m = 0; m < run.microbatches; ++m) {
        std::vector<Values> contributions;
        std::vector<TensorView> views;
        for (int rank = 0; rank < mesh.size(); ++rank) {
          contributions.emplace_back(dtypes.wire, n);
          for (int64_t i = 0; i < n; ++i) {
            WriteElement(contributions.back().view(), i,
                         ToyGradient(run, {rank, step, m, u, p, i},
                                     ReadWide(model.view(), i)));
          }
        }
        for (Values& values : contributions) views.push_back(values.view());
        oracle.Add(views);
      }
      oracle.Finalize();
      AccumulateScaledElements(main.view(), oracle.gradient(),
                               -run.learning_rate);
      for (int64_t i = 0; i < n; ++i) {
        history.gradients[step][u][p].push_back(ReadWide(oracle.gradient(), i));
      }
      history.weights[step + 1][u][p] = main.ToDoubles();
      oracle.Zero();
    }
  });
  return history;
}

ToyHistory BigBatchHistory(const ToyRun& run) {
  const DeviceMesh mesh = *DeviceMesh::Parse(run.mesh);
  ToyHistory history;
  history.weights.assign(run.steps + 1, EmptyValues(run));
  history.gradients.assign(run.steps, EmptyValues(run));
  const double scale =
      (run.reduction == GradientReduction::kMean ? 1.0 / mesh.size() : 1.0) /
      run.grad_divisor;
  ForEachParameter(run, [&](int u, int p, int64_t n) {
    std::vector<double> weight(n);
    for (int64_t i = 0; i < n; ++i) weight[i] = InitialWeight(u, p, i);
    history.weights[0][u][p] = weight;
    for (int step = 0; step < run.steps; ++step) {
      std::vector<double> gradient(n, 0.0);
      for (int64_t i = 0; i < n; ++i) {
        for (int m = 0; m < run.microbatches; ++m) {
          for (int rank = 0; rank < mesh.size(); ++rank) {
            gradient[i] +=
                ToyGradient(run, {rank, step, m, u, p, i}, weight[i]);
          }
        }
        gradient[i] *= scale;
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
  auto toy = std::unique_ptr<ToyRank>(new ToyRank(run, comms.rank(), stream));
  FsdpOptions options;
  TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse(run.mesh));
  TESSERA_ASSIGN_OR_RETURN(
      options.placements, PlacementsFor(run.strategy, options.mesh.num_axes()));
  options.precision = run.precision;
  options.reduction = run.reduction;
  options.grad_divisor = run.grad_divisor;
  options.logger = Logger(nullptr, absl::LogSeverity::kInfo);
  TESSERA_ASSIGN_OR_RETURN(toy->context_,
                           Context::Create(options, comms.world(), stream));
  for (const ToyUnit& unit : run.units) {
    UnitOptions unit_options;
    unit_options.release = run.release;
    if (unit.parent >= 0) unit_options.parent = toy->units_[unit.parent];
    UnitBuilder builder = toy->context_->NewUnit(unit.name, unit_options);
    for (const ToyParameter& parameter : unit.parameters) {
      TESSERA_ASSIGN_OR_RETURN(
          TensorMeta meta, TensorMeta::Create(run.dtype, parameter.extents));
      builder.Add(parameter.name, meta);
    }
    TESSERA_ASSIGN_OR_RETURN(Unit * built, builder.Build());
    toy->units_.push_back(built);
  }
  TESSERA_RETURN_IF_ERROR(toy->context_->Prepare());

  absl::Status status;
  ForEachParameter(run, [&](int u, int p, int64_t n) {
    Values values(DtypesOf(run).main_weight, n);
    for (int64_t i = 0; i < n; ++i) {
      WriteElement(values.view(), i, InitialWeight(u, p, i));
    }
    const TensorMeta& meta = toy->units_[u]->parameter_layout(p).meta();
    status.Update(toy->units_[u]->LoadWeight(
        p,
        TensorView(values.view().data(),
                   *TensorMeta::Create(values.view().dtype(), meta.shape()))));
  });
  TESSERA_RETURN_IF_ERROR(status);
  return toy;
}

absl::Status ToyRank::OpenForward(int u, const ToyValues& expected) {
  units_[u]->BeforeForward();
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    if (weight.shape() != units_[u]->parameter_layout(p).shape()) {
      return absl::InternalError(
          absl::StrCat("weight has shape ", weight.shape().ToString()));
    }
    TESSERA_RETURN_IF_ERROR(stream_.Launch(
        {.name = "check weights"}, [u, p, weight, &expected]() -> absl::Status {
          const std::vector<double>& wide = expected[u][p];
          for (int64_t i = 0; i < weight.num_elements(); ++i) {
            Values rounded(weight.dtype(), 1);
            WriteElement(rounded.view(), 0, wide[i]);
            if (SameBits(ReadWide(weight, i), ReadWide(rounded.view(), 0))) {
              continue;
            }
            return absl::InternalError(
                absl::StrCat("gathered weight ", u, ".", p, "[", i, "] is ",
                             ReadWide(weight, i), ", want ", wide[i]));
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::Forward(const ToyValues& expected) {
  const int n = static_cast<int>(units_.size());
  for (int u = 0; u < n; ++u) {
    TESSERA_RETURN_IF_ERROR(OpenForward(u, expected));
    // Units without children end at once, roots after their last child.
    const bool has_children = u + 1 < n && run_.units[u + 1].parent == u;
    if (!has_children) units_[u]->AfterForward();
    if (run_.units[u].parent >= 0 &&
        (u + 1 == n || run_.units[u + 1].parent != run_.units[u].parent)) {
      units_[run_.units[u].parent]->AfterForward();
    }
  }
  return context_->status();
}

absl::Status ToyRank::WriteGradients(int u, int step, int microbatch) {
  for (ParameterId p = 0; p < units_[u]->num_parameters(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView weight, units_[u]->weight(p));
    TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                             units_[u]->grad(p, GradientWrite::kOverwrite));
    TESSERA_RETURN_IF_ERROR(stream_.Launch(
        {.name = "toy backward"},
        [this, u, p, step, microbatch, weight, gradient] {
          for (int64_t i = 0; i < gradient.num_elements(); ++i) {
            WriteElement(gradient, i,
                         ToyGradient(run_, {rank_, step, microbatch, u, p, i},
                                     ReadWide(weight, i)));
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::Status ToyRank::Backward(int step, int microbatch,
                               std::optional<bool> is_last) {
  const int n = static_cast<int>(units_.size());
  for (int u = n - 1; u >= 0; --u) {
    const int parent = run_.units[u].parent;
    const bool first_child =
        parent >= 0 && (u + 1 == n || run_.units[u + 1].parent != parent);
    if (first_child) units_[parent]->BeforeBackward();
    const bool has_children = u + 1 < n && run_.units[u + 1].parent == u;
    if (!has_children) units_[u]->BeforeBackward();
    TESSERA_RETURN_IF_ERROR(WriteGradients(u, step, microbatch));
    units_[u]->AfterBackward(is_last);
  }
  return context_->status();
}

absl::Status ToyRank::CheckPiece(const ShardedTensor& tensor,
                                 const std::vector<double>& expected,
                                 absl::string_view what) {
  TESSERA_RETURN_IF_ERROR(context_->Synchronize());
  const Region region = tensor.layout().RegionOf(rank_);
  const int64_t first = region.flat.has_value() ? region.flat->begin : 0;
  const TensorView piece = tensor.local().Flattened();
  for (int64_t i = 0; i < piece.num_elements(); ++i) {
    if (SameBits(ReadWide(piece, i), expected[first + i])) continue;
    return absl::InternalError(absl::StrCat(what, "[", first + i, "] is ",
                                            ReadWide(piece, i), ", want ",
                                            expected[first + i]));
  }
  return absl::OkStatus();
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

absl::Status TrainAndCompare(const ToyRun& run, const ToyHistory& expected) {
  return RunLocalRanks(
      DeviceMesh::Parse(run.mesh)->size(),
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ToyRank> toy,
                                 ToyRank::Create(run, rank.comms, rank.stream));
        SgdOptimizer optimizer(toy->context(), run.learning_rate);
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
          TESSERA_RETURN_IF_ERROR(optimizer.Step());
          TESSERA_RETURN_IF_ERROR(
              toy->CheckWeights(expected.weights[step + 1]));
          TESSERA_RETURN_IF_ERROR(toy->context().ZeroGradients(run.zero_grad));
        }
        return toy->context().Synchronize();
      },
      {.device = {.streams = run.streams}});
}

}  // namespace tessera::testing
