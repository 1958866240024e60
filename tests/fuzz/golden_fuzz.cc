// Reads texts as golden plans.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/testing/golden_plans.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::testing::GoldenPlan;
  tessera::testing::CheckParser(
      std::string(reinterpret_cast<const char*>(data), size),
      [](const std::string& text) {
        return tessera::testing::GoldenPlansFromJson(text);
      },
      [](const std::vector<GoldenPlan>& plans) {
        return tessera::testing::GoldenPlansToJson(plans);
      });
  return 0;
}
