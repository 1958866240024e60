#ifndef TESSERA_TESTING_HOST_TENSOR_H_
#define TESSERA_TESTING_HOST_TENSOR_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tessera/tensor/tensor_meta.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::testing {

// A dense, row-major tensor in memory of its own, zero at first. A value:
// copies have their own elements, equal ones have the same bits.
class HostTensor {
 public:
  explicit HostTensor(TensorMeta meta)
      : meta_(std::move(meta)),
        bytes_(static_cast<size_t>(meta_.num_bytes())) {}

  const TensorMeta& meta() const { return meta_; }
  // LIFETIME: until this tensor is moved, assigned to or gone.
  TensorView view() { return TensorView(bytes_.data(), meta_); }
  absl::Span<const std::byte> bytes() const { return bytes_; }

  // The elements. REQUIRES: DTypeOf<T> == meta().dtype(). LIFETIME: as view().
  template <typename T>
  absl::Span<T> values() {
    assert(DTypeOf<T> == meta_.dtype());
    return {reinterpret_cast<T*>(bytes_.data()),
            static_cast<size_t>(meta_.num_elements())};
  }

  // Element `number`, in row-major order. REQUIRES: the tensor has it.
  double At(int64_t number) const;

  // "f32[2,2] 0 1 2 3"; of many elements the first ones.
  std::string ToString() const;

  friend bool operator==(const HostTensor&, const HostTensor&) = default;
  friend std::ostream& operator<<(std::ostream& os, const HostTensor& t) {
    return os << t.ToString();
  }

 private:
  TensorMeta meta_;
  std::vector<std::byte> bytes_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_HOST_TENSOR_H_
