#include "tessera/testing/host_tensor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tessera::testing {

double HostTensor::At(int64_t number) const {
  return VisitDType(meta_.dtype(), [&]<typename T>() {
    T value;
    std::memcpy(&value, bytes_.data() + number * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == 2) {
      return double{static_cast<float>(value)};
    } else {
      return static_cast<double>(value);
    }
  });
}

std::string HostTensor::ToString() const {
  constexpr int64_t kMostShown = 32;
  std::string text = meta_.ToString();
  const int64_t shown = std::min(meta_.num_elements(), kMostShown);
  for (int64_t i = 0; i < shown; ++i) absl::StrAppend(&text, " ", At(i));
  if (shown < meta_.num_elements()) absl::StrAppend(&text, " ...");
  return text;
}

}  // namespace tessera::testing
