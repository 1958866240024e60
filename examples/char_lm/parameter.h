#ifndef CHAR_LM_PARAMETER_H_
#define CHAR_LM_PARAMETER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace char_lm {

enum class Init { kZeros, kOnes, kNormal };

// What there is to know about a parameter before it has memory.
struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  Init init = Init::kZeros;
  double stddev = 0;  // Of Init::kNormal.

  int64_t num_elements() const;
};

// Writes the initial value of `spec`, the parameter at `parameter` of the unit
// at `unit`, to out[0 .. spec.num_elements()). The values are a pure function
// of the arguments, the same on every machine. The normal distribution is
// approximated by a sum of twelve uniform ones, so no value is farther than six
// standard deviations from zero.
void InitializeParameter(const ParameterSpec& spec, uint64_t seed, int unit,
                         int parameter, float* out);

}  // namespace char_lm

#endif  // CHAR_LM_PARAMETER_H_
