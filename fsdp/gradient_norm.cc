#include "tessera/fsdp/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

// Whether the rank at `coords` is the first of those that hold the same piece.
bool CountsPiece(const Layout& layout, const MeshCoords& coords) {
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (layout.placement(axis).is_replicate() && coords[axis] != 0) {
      return false;
    }
  }
  return true;
}

// The pieces that are taken, those that touch as one: without padding.
std::vector<Interval> RunsOf(absl::Span<const ShardPiece> pieces,
                             absl::FunctionRef<bool(ParameterId)> takes) {
  std::vector<Interval> runs;
  for (const auto& [parameter, elements] : pieces) {
    if (elements.empty() || !takes(parameter)) continue;
    if (!runs.empty() && runs.back().end == elements.begin) {
      runs.back().end = elements.end;
    } else {
      runs.push_back(elements);
    }
  }
  return runs;
}

// What a rank tells the others of its gradients: the first parameter with
// elements that are not finite, and how many.
struct Finding {
  int parameter = std::numeric_limits<int>::max();  // none
  int64_t elements = 0;
};

std::string ToText(const Finding& finding) {
  return absl::StrCat(finding.parameter, " ", finding.elements);
}

// What a rank tells that could not count has no numbers.
absl::StatusOr<Finding> ParseFinding(const std::string& text) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  Finding finding;
  if (absl::SimpleAtoi(parts.first, &finding.parameter) &&
      absl::SimpleAtoi(parts.second, &finding.elements)) {
    return finding;
  }
  return absl::AbortedError(
      absl::StrCat("fsdp: gradient_norm: another rank failed: ", text));
}

Finding FirstOf(absl::Span<const double> counts) {
  const auto found = std::find_if(counts.begin(), counts.end(),
                                  [](double n) { return n > 0; });
  if (found == counts.end()) return {};
  return {static_cast<int>(found - counts.begin()),
          static_cast<int64_t>(*found)};
}

constexpr char kWhat[] = "gradient_norm";

}  // namespace

absl::StatusOr<GradientNorm> GradientNorm::Create(Context& context) {
  TESSERA_RETURN_IF_ERROR(context.mesh_communicator().status());
  const MeshCoords coords = *context.mesh().CoordsOf(context.rank());
  std::map<const Unit*, UnitParts> units;
  int first = 0;
  for (const auto& unit : context.units()) {
    UnitParts parts = {.first = first, .counted = {}};
    for (ParameterId p = 0; p < unit->num_parameters(); ++p) {
      // Final gradients lie as main weights do.
      TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight,
                               unit->main_weight(p));
      parts.counted.push_back(CountsPiece(weight.layout(), coords));
    }
    first += unit->num_parameters();
    units.emplace(unit.get(), std::move(parts));
  }
  TESSERA_ASSIGN_OR_RETURN(
      HostScalar squares,
      HostScalar::Create(context.compute(), kGradientNormTag));
  return GradientNorm(context, std::move(squares), std::move(units));
}

absl::Status GradientNorm::Compute() {
  TESSERA_RETURN_IF_ERROR(squares_.Zero());
  TESSERA_RETURN_IF_ERROR(context_->VisitGradients(
      kWhat,
      [this](const OptimizerShard& shard, Stream& stream) -> absl::Status {
        const std::vector<bool>& counted = units_.at(&shard.unit).counted;
        for (const Interval& run :
             RunsOf(shard.pieces, [&](ParameterId p) { return counted[p]; })) {
          TESSERA_RETURN_IF_ERROR(stream.device().kernels().AddSquares(
              stream, squares_.view(), shard.gradient.Slice(0, run)));
        }
        return absl::OkStatus();
      }));
  TESSERA_RETURN_IF_ERROR(context_->SumOverRanks(squares_.view()));
  return squares_.Request();
}

absl::Status GradientNorm::Clip(double max_norm) {
  if (!(max_norm >= 0) || !std::isfinite(max_norm)) {
    return absl::InvalidArgumentError(
        absl::StrCat("fsdp: gradient_norm: max_norm is ", max_norm,
                     ", want a finite number of at least 0"));
  }
  TESSERA_RETURN_IF_ERROR(Compute());
  return context_->VisitGradients(
      "clip",
      [this, max_norm](const OptimizerShard& shard,
                       Stream& stream) -> absl::Status {
        for (const Interval& run :
             RunsOf(shard.pieces, [](ParameterId) { return true; })) {
          TESSERA_RETURN_IF_ERROR(stream.device().kernels().ClipToNorm(
              stream, shard.gradient.Slice(0, run), squares_.view(), max_norm));
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<double> GradientNorm::Value() const {
  TESSERA_ASSIGN_OR_RETURN(const double squares, squares_.Value());
  return std::sqrt(squares);
}

absl::Status GradientNorm::CheckFinite() {
  TESSERA_ASSIGN_OR_RETURN(const double norm, Value());
  if (std::isfinite(norm)) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(Communicator * everyone,
                           context_->mesh_communicator());
  const absl::StatusOr<std::vector<double>> counts = CountNonFinite();
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      everyone->HostAllGather(counts.ok() ? ToText(FirstOf(*counts))
                                          : counts.status().ToString()));
  TESSERA_RETURN_IF_ERROR(counts.status());
  Finding first;
  int first_rank = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const Finding finding, ParseFinding(texts[i]));
    if (finding.parameter >= first.parameter) continue;
    first = finding;
    first_rank = everyone->members()[i];
  }
  if (first.elements == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fsdp: the norm of the gradients is ", norm, ", all are finite"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("fsdp: the norm of the gradients is ", norm, ": ",
                   NameOf(first.parameter), " has ", first.elements,
                   " elements that are infinite or NaN on rank ", first_rank));
}

absl::StatusOr<std::vector<double>> GradientNorm::CountNonFinite() {
  Stream& compute = context_->compute();
  Kernels& kernels = compute.device().kernels();
  int64_t parameters = 0;
  for (const auto& [unit, parts] : units_) parameters += unit->num_parameters();
  TESSERA_ASSIGN_OR_RETURN(
      const Buffer memory,
      compute.device().Allocate(parameters * sizeof(double), kGradientNormTag,
                                &compute));
  const TensorView all =
      TensorView::Flat(memory.data(), DType::kF64, parameters);
  std::vector<double> counts(parameters);
  const auto enqueue = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(kernels.Fill(compute, all, 0.0));
    TESSERA_RETURN_IF_ERROR(context_->VisitGradients(
        kWhat,
        [&](const OptimizerShard& shard, Stream& stream) -> absl::Status {
          const int first = units_.at(&shard.unit).first;
          for (const auto& [p, elements] : shard.pieces) {
            TESSERA_RETURN_IF_ERROR(kernels.CountNonFinite(
                stream, all.Slice(0, {first + p, first + p + 1}),
                shard.gradient.Slice(0, elements)));
          }
          return absl::OkStatus();
        }));
    return kernels.CopyToHost(compute, counts.data(), all);
  };
  absl::Status status = enqueue();
  // What was enqueued uses the memory and the counts.
  status.Update(compute.Synchronize());
  TESSERA_RETURN_IF_ERROR(status);
  return counts;
}

std::string GradientNorm::NameOf(int parameter) const {
  for (const auto& [unit, parts] : units_) {
    const int p = parameter - parts.first;
    if (p < 0 || p >= unit->num_parameters()) continue;
    return absl::StrCat("unit '", unit->name(), "' parameter '",
                        unit->parameter_name(p), "'");
  }
  return "";
}

}  // namespace tessera
