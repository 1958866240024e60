#ifndef TESSERA_DBUFFER_FLAT_LAYOUT_H_
#define TESSERA_DBUFFER_FLAT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/dbuffer/granularity.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/shape.h"

namespace tessera {

// Where the tensors of a group lie in one flat sequence of elements that is
// cut into equal parts, one per rank. Each tensor is contiguous; what lies
// between and behind tensors is padding. A value; thread-safe.
//
//   POST: offset(i) is a multiple of 16 / SizeOf(narrowest);
//         [offset(i), offset(i) + elements(i)) do not overlap;
//         per_rank_elements() is a multiple of 128 / SizeOf(narrowest);
//         num_elements() == ranks() * per_rank_elements();
//         for every k, part k begins in no tensor, or between two granules
//         of one: (k * per_rank_elements() - offset(i)) % granule(i) == 0
//
// so that every tensor begins on 16 bytes and every part on 128, in any dtype
// at least as wide.
class FlatLayout {
 public:
  struct Tensor {
    std::string name;
    Shape shape;
    Granularity granularity = {};
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };

  // The layout with the smallest parts that can be found; PackTensors says
  // how. Tensors lie in list order where that costs nothing, as it never does
  // where all granularities are elements. Pure: the same arguments give the
  // same layout on every rank.
  //
  // ERRORS: InvalidArgument for no tensors, ranks < 1, a tensor without
  // elements, or sizes beyond int64, naming the tensor.
  // COST: little where list order will do; at most some tens of milliseconds
  // for hundreds of tensors of coarse granules.
  static absl::StatusOr<FlatLayout> Create(absl::Span<const Tensor> tensors,
                                           int64_t ranks, DType narrowest);

  int num_tensors() const { return static_cast<int>(tensors_.size()); }
  const Tensor& tensor(int i) const { return tensors_[i]; }
  int64_t offset(int i) const { return offsets_[i]; }
  // [offset, offset + elements of tensor i).
  Interval extent(int i) const;
  // Elements of a granule of tensor i.
  int64_t granule(int i) const;
  // The tensors, as they lie in memory.
  absl::Span<const int> memory_order() const { return memory_order_; }

  int64_t ranks() const { return ranks_; }
  int64_t per_rank_elements() const { return per_rank_elements_; }
  int64_t num_elements() const { return ranks_ * per_rank_elements_; }
  int64_t tensor_elements() const { return tensor_elements_; }
  int64_t padding_elements() const { return num_elements() - tensor_elements_; }
  // Proven: no layout with this POST has less padding.
  int64_t padding_bound() const {
    return ranks_ * per_rank_bound_ - tensor_elements_;
  }

  // The stretches that belong to no tensor, ascending, not empty.
  std::vector<Interval> Padding() const;

  // One row per tensor (name, shape, granularity, offset, elements), then
  // per-rank size and padding in elements and percent.
  std::string ToTable() const;

  friend bool operator==(const FlatLayout& a, const FlatLayout& b) = default;

 private:
  FlatLayout() = default;

  std::vector<Tensor> tensors_;
  std::vector<int64_t> offsets_;
  std::vector<int> memory_order_;
  int64_t ranks_ = 1;
  int64_t per_rank_elements_ = 0;
  int64_t per_rank_bound_ = 0;
  int64_t tensor_elements_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DBUFFER_FLAT_LAYOUT_H_
