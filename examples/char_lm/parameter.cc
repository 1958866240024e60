#include "char_lm/parameter.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "char_lm/random.h"

namespace char_lm {
namespace {

// The sum of twelve uniform values has variance one. It is taken over 16-bit
// integers, hence exact: no library function that may round differently
// elsewhere has a part in it.
double NextNormal(Random& random) {
  int64_t sum = 0;
  for (int draw = 0; draw < 3; ++draw) {
    const uint64_t bits = random.Next();
    for (int shift = 0; shift < 64; shift += 16) {
      sum += static_cast<int64_t>((bits >> shift) & 0xffff);
    }
  }
  constexpr int64_t kMean = 12 * 0xffff / 2;
  return static_cast<double>(sum - kMean) / 0x10000;
}

}  // namespace

int64_t ParameterSpec::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1},
                         std::multiplies<>());
}

void InitializeParameter(const ParameterSpec& spec, uint64_t seed, int unit,
                         int parameter, float* out) {
  const int64_t size = spec.num_elements();
  switch (spec.init) {
    case Init::kZeros:
      std::fill_n(out, size, 0.0f);
      return;
    case Init::kOnes:
      std::fill_n(out, size, 1.0f);
      return;
    case Init::kNormal:
      Random random({seed, static_cast<uint64_t>(unit),
                     static_cast<uint64_t>(parameter)});
      std::generate_n(out, size, [&] {
        return static_cast<float>(spec.stddev * NextNormal(random));
      });
      return;
  }
}

}  // namespace char_lm
