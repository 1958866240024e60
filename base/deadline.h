#ifndef TESSERA_BASE_DEADLINE_H_
#define TESSERA_BASE_DEADLINE_H_

#include <chrono>

namespace tessera::internal {

// So long after `begin`; the end of all time where that is later, as it is for
// milliseconds::max().
inline std::chrono::steady_clock::time_point DeadlineAfter(
    std::chrono::steady_clock::time_point begin,
    std::chrono::milliseconds timeout) {
  using Time = std::chrono::steady_clock::time_point;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      Time::max() - begin);
  return timeout < left ? begin + timeout : Time::max();
}

}  // namespace tessera::internal

#endif  // TESSERA_BASE_DEADLINE_H_
