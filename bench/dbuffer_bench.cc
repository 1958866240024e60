// What it costs to plan the flat layout of a unit of a real model.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "tessera/dbuffer/flat_layout.h"
#include "tools/models/built_in.h"
#include "tools/models/model_layout.h"

namespace tessera {
namespace {

struct Case {
  const char* model;
  const char* unit;
  const char* granularity;
  int64_t ranks;
};

std::vector<FlatLayout::Tensor> TensorsOf(const tools::Model& model,
                                          const Case& c) {
  const auto unit = absl::c_find_if(
      model.units,
      [&](const tools::Model::Unit& u) { return u.name == c.unit; });
  return tools::TensorsOf(*unit, Granularity::Parse(c.granularity).value());
}

void PlanFlatLayout(benchmark::State& state, const Case& c) {
  const tools::Model model = tools::BuiltInModel(c.model).value();
  const std::vector<FlatLayout::Tensor> tensors = TensorsOf(model, c);
  for (auto _ : state) {
    benchmark::DoNotOptimize(FlatLayout::Create(tensors, c.ranks, model.dtype));
  }
}

// Where list order will do.
BENCHMARK_CAPTURE(PlanFlatLayout, deepseek_moe_element_1024,
                  Case{"deepseek-v3", "moe_layer", "element", 1024})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PlanFlatLayout, llama_8b_row_1024,
                  Case{"llama-3.1-8b", "layer", "row", 1024})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PlanFlatLayout, gpt_oss_inner_row_1024,
                  Case{"gpt-oss-120b", "layer", "inner-row", 1024})
    ->Unit(benchmark::kMicrosecond);

// Where it will not: coarse granules, up to hundreds of tensors.
BENCHMARK_CAPTURE(PlanFlatLayout, deepseek_moe_row_1024,
                  Case{"deepseek-v3", "moe_layer", "row", 1024})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFlatLayout, deepseek_moe_rows32_96,
                  Case{"deepseek-v3", "moe_layer", "rows:32", 96})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFlatLayout, qwen3_rows128_128,
                  Case{"qwen3-30b-a3b", "layer", "rows:128", 128})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFlatLayout, mixtral_rows16_48,
                  Case{"mixtral-8x7b", "layer", "rows:16", 48})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera
