#ifndef TESSERA_TESTS_CPU_STREAMS_H_
#define TESSERA_TESTS_CPU_STREAMS_H_

#include <string>

#include "gtest/gtest.h"
#include "tessera/device/cpu/cpu_device.h"

namespace tessera::testing {

// For tests with both kinds of streams: what instances are called.
//
//   INSTANTIATE_TEST_SUITE_P(Streams, MyTest, BothStreams(), StreamsName);
inline auto BothStreams() {
  return ::testing::Values(CpuStreams::kInline, CpuStreams::kWorker);
}

inline std::string StreamsName(
    const ::testing::TestParamInfo<CpuStreams>& streams) {
  return streams.param == CpuStreams::kInline ? "Inline" : "Worker";
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_CPU_STREAMS_H_
