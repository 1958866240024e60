#include "tessera/testing/gradient_oracle.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "tessera/device/cpu/elementwise.h"

namespace tessera::testing {

GradientOracle::GradientOracle(Options options, int64_t elements)
    : options_(std::move(options)), elements_(elements) {
  const int num_axes = static_cast<int>(options_.axis_sizes.size());
  if (options_.cut_order.empty()) {
    for (int axis = num_axes - 1; axis >= 0; --axis) {
      options_.cut_order.push_back(axis);
    }
  }
  int ranks = 1;
  for (int size : options_.axis_sizes) ranks *= size;
  scale_ = options_.reduction == GradientReduction::kMean
               ? 1.0 / (ranks * options_.grad_divisor)
               : 1.0 / options_.grad_divisor;
  main_.assign(ranks, Bytes(elements * SizeOf(options_.accumulation)));
}

TensorView GradientOracle::View(Bytes& bytes, DType dtype) const {
  return TensorView::Flat(bytes.data(), dtype, elements_);
}

int GradientOracle::Coordinate(int rank, int axis) const {
  int stride = 1;
  for (size_t a = axis + 1; a < options_.axis_sizes.size(); ++a) {
    stride *= options_.axis_sizes[a];
  }
  return rank / stride % options_.axis_sizes[axis];
}

int GradientOracle::Neighbour(int rank, int axis, int coordinate) const {
  int stride = 1;
  for (size_t a = axis + 1; a < options_.axis_sizes.size(); ++a) {
    stride *= options_.axis_sizes[a];
  }
  return rank + (coordinate - Coordinate(rank, axis)) * stride;
}

void GradientOracle::ReduceAlong(int axis, DType dtype,
                                 std::vector<Bytes>& values) const {
  std::vector<Bytes> reduced(values.size());
  for (int rank = 0; rank < num_ranks(); ++rank) {
    std::vector<TensorView> sources;
    for (int c = 0; c < options_.axis_sizes[axis]; ++c) {
      sources.push_back(View(values[Neighbour(rank, axis, c)], dtype));
    }
    reduced[rank].resize(values[rank].size());
    ReduceElements(ReduceOp::kSum, View(reduced[rank], dtype), sources);
  }
  values = std::move(reduced);
}

void GradientOracle::Add(absl::Span<const TensorView> contributions) {
  assert(static_cast<int>(contributions.size()) == num_ranks());
  std::vector<Bytes> values(num_ranks());
  for (int rank = 0; rank < num_ranks(); ++rank) {
    assert(contributions[rank].dtype() == options_.wire);
    assert(contributions[rank].num_elements() == elements_);
    values[rank].resize(elements_ * SizeOf(options_.wire));
    CopyElements(View(values[rank], options_.wire),
                 contributions[rank].Flattened());
  }
  for (int axis : options_.cut_order) {
    if (options_.placements.gradient[axis].is_flat()) {
      ReduceAlong(axis, options_.wire, values);
    }
  }
  if (final_) Reopen();
  for (int rank = 0; rank < num_ranks(); ++rank) {
    AccumulateScaledElements(View(main_[rank], options_.accumulation),
                             View(values[rank], options_.wire), scale_);
  }
}

void GradientOracle::Reopen() {
  for (int axis : options_.cut_order) {
    if (options_.placements.gradient[axis].is_flat()) continue;
    const bool was_flat = options_.placements.optimizer[axis].is_flat();
    assert(!was_flat ||
           static_cast<int64_t>(options_.owners.size()) == elements_);
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const TensorView main = View(main_[rank], options_.accumulation);
      for (int64_t i = 0; i < elements_; ++i) {
        const int keeper = was_flat ? Coordinate(options_.owners[i], axis) : 0;
        if (Coordinate(rank, axis) == keeper) continue;
        FillElements(main.Slice(0, {i, i + 1}), -0.0);
      }
    }
  }
  final_ = false;
}

void GradientOracle::Finalize() {
  for (bool becomes_flat : {true, false}) {
    for (int axis : options_.cut_order) {
      if (options_.placements.gradient[axis].is_flat()) continue;
      if (options_.placements.optimizer[axis].is_flat() != becomes_flat) {
        continue;
      }
      ReduceAlong(axis, options_.accumulation, main_);
    }
  }
  final_ = true;
}

void GradientOracle::Zero() {
  for (Bytes& bytes : main_) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
  final_ = false;
}

}  // namespace tessera::testing
