#ifndef TESSERA_TESTS_DEVICE_ELEMENTWISE_REFERENCE_H_
#define TESSERA_TESTS_DEVICE_ELEMENTWISE_REFERENCE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tessera/tensor/tensor_view.h"

// Slow and obvious arithmetic on elements, and memory to run kernels on.

namespace tessera::testing {

using AllTypes =
    ::testing::Types<float, double, BFloat16, Float16, int32_t, int64_t>;
using FloatTypes = ::testing::Types<float, double, BFloat16, Float16>;

struct DTypeNames {
  template <typename T>
  static std::string GetName(int) {
    return std::string(DTypeName(DTypeOf<T>));
  }
};

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// Holds every value of every dtype: 64 bits of mantissa.
using Exact = long double;
static_assert(std::numeric_limits<Exact>::digits >= 64);

template <typename T>
Exact ToExact(T value) {
  if constexpr (kIsHalf<T>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

// The bits of infinity; those of all finite positive values lie below, in
// ascending order.
template <typename T>
inline constexpr uint16_t kInfinityBits =
    std::is_same_v<T, BFloat16> ? 0x7f80 : 0x7c00;

// The value of non-negative finite bits. Infinity counts as the value that
// would follow if exponents went on, which is where rounding to it begins.
template <typename T>
Exact MagnitudeOf(uint16_t bits) {
  if (bits < kInfinityBits<T>) return ToExact(T::FromBits(bits));
  return std::is_same_v<T, BFloat16> ? 0x1p128L : 0x1p16L;
}

// The nearest half; of two, the one with even bits.
template <typename T>
T RoundToHalf(Exact value) {
  if (std::isnan(value)) return T(std::nanf(""));
  const Exact magnitude = std::fabs(value);
  // The greatest half that is no greater.
  int low = 0;
  int high = kInfinityBits<T> + 1;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (MagnitudeOf<T>(static_cast<uint16_t>(middle)) <= magnitude ? low : high) =
        middle;
  }
  int bits = low;
  if (bits < kInfinityBits<T>) {
    const Exact below = magnitude - MagnitudeOf<T>(static_cast<uint16_t>(low));
    const Exact above =
        MagnitudeOf<T>(static_cast<uint16_t>(low + 1)) - magnitude;
    if (above < below || (above == below && low % 2 == 1)) ++bits;
  }
  return T::FromBits(
      static_cast<uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0)));
}

template <typename T>
T FromExact(Exact value) {
  if constexpr (kIsHalf<T>) {
    return RoundToHalf<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// Bits, so that -0.0 and 0.0 differ; any NaN equals any other.
template <typename T>
bool Same(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a == b;
  } else {
    const Exact x = ToExact(a);
    const Exact y = ToExact(b);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return x == y && std::signbit(x) == std::signbit(y);
  }
}

template <typename T>
::testing::AssertionResult AllSame(const std::vector<T>& found,
                                   const std::vector<T>& expected) {
  if (found.size() != expected.size()) {
    return ::testing::AssertionFailure() << "other sizes";
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (Same(found[i], expected[i])) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " is " << ToExact(found[i]) << ", want "
           << ToExact(expected[i]);
  }
  return ::testing::AssertionSuccess();
}

// Mostly numbers of middling size; now and then zeros of both signs,
// infinities, NaN, subnormals, the greatest and the least.
template <typename T>
T RandomElement(std::mt19937_64& rng) {
  if constexpr (std::is_integral_v<T>) {
    const int shift = static_cast<int>(rng() % (8 * sizeof(T)));
    return static_cast<T>(static_cast<T>(rng()) >> shift);
  } else {
    using Limits = std::numeric_limits<float>;
    constexpr float kSpecial[] = {0.0f,
                                  -0.0f,
                                  Limits::infinity(),
                                  -Limits::infinity(),
                                  Limits::max(),
                                  Limits::lowest(),
                                  Limits::quiet_NaN(),
                                  Limits::denorm_min(),
                                  65504.0f,
                                  0x1p-24f};
    if (rng() % 16 == 0) {
      return FromExact<T>(kSpecial[rng() % std::size(kSpecial)]);
    }
    const double mantissa = std::uniform_real_distribution<double>(-2, 2)(rng);
    return FromExact<T>(
        std::ldexp(mantissa, static_cast<int>(rng() % 21) - 10));
  }
}

template <typename T>
std::vector<T> RandomElements(std::mt19937_64& rng, int64_t n) {
  std::vector<T> elements;
  for (int64_t i = 0; i < n; ++i) elements.push_back(RandomElement<T>(rng));
  return elements;
}

template <typename T>
TensorView FlatView(std::vector<T>& elements) {
  return TensorView::Flat(elements.data(), DTypeOf<T>,
                          static_cast<int64_t>(elements.size()));
}

// Shapes that take every path: none, one and many dims, extents 0 and 1, rows
// longer than a block.
inline std::vector<Shape> TestShapes() {
  std::vector<Shape> shapes;
  for (const std::vector<int64_t>& extents :
       std::vector<std::vector<int64_t>>{{},
                                         {0},
                                         {1},
                                         {7},
                                         {1300},
                                         {3, 0, 2},
                                         {5, 4},
                                         {2, 600},
                                         {4, 5, 6},
                                         {2, 1, 3, 1, 5},
                                         {1, 1},
                                         {2, 3, 2, 3, 2, 2}}) {
    shapes.push_back(Shape::Create(extents).value());
  }
  return shapes;
}

// Ways to lay out a shape without overlap.
inline std::vector<Dims> TestStrides(const Shape& shape) {
  const int n = shape.num_dims();
  // Dims in the order given, innermost first; `gap` more elements behind each
  // dim's, and `step` between elements.
  const auto lay_out = [&](bool row_major, int64_t step, int64_t gap) {
    Dims strides(n);
    int64_t stride = step;
    for (int i = 0; i < n; ++i) {
      const int dim = row_major ? n - 1 - i : i;
      strides[dim] = stride;
      stride *= shape.extent(dim) + gap;
    }
    return strides;
  };
  return {shape.RowMajorStrides(), lay_out(true, 1, 2), lay_out(true, 2, 0),
          lay_out(false, 1, 0), lay_out(false, 3, 1)};
}

// Memory of its own for a view with any strides.
template <typename T>
class Strided {
 public:
  Strided(const Shape& shape, const Dims& strides, std::mt19937_64& rng)
      : shape_(shape), strides_(strides) {
    memory = RandomElements<T>(
        rng, TensorView::Strided(nullptr, meta(), strides).value().SpanBytes() /
                 static_cast<int64_t>(sizeof(T)));
  }

  TensorView view() {
    return TensorView::Strided(memory.data(), meta(), strides_).value();
  }

  // Where element `i` in row-major order lies.
  int64_t OffsetOf(int64_t i) const {
    int64_t offset = 0;
    for (int dim = shape_.num_dims() - 1; dim >= 0; --dim) {
      offset += i % shape_.extent(dim) * strides_[dim];
      i /= shape_.extent(dim);
    }
    return offset;
  }

  std::string ToString() const {
    return absl::StrCat(shape_.ToString(), " strides (",
                        absl::StrJoin(strides_, ","), ")");
  }

  std::vector<T> memory;

 private:
  TensorMeta meta() const {
    return TensorMeta::Create(DTypeOf<T>, shape_).value();
  }

  Shape shape_;
  Dims strides_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_DEVICE_ELEMENTWISE_REFERENCE_H_
