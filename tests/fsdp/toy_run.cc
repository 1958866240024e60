#include "tests/fsdp/toy_run.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/fsdp/toy_parts.h"

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
  return *PlacementsFor(strategy, static_cast<int>(toy::AxesOf(*this).size()));
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

}  // namespace tessera::testing
