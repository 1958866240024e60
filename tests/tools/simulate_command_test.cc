// `tessera simulate` as users run it.

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/file.h"
#include "tessera/mesh/topology.h"
#include "tests/status_matchers.h"
#include "tests/temporary_folder.h"
#include "tests/tools/json_schema.h"
#include "tests/tools/run_tessera.h"

namespace tessera::testing {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTiny[] = R"({
  "model": "tiny", "dtype": "bf16", "units": [
    {"name": "layer", "repeat": 2, "params": [
      {"name": "w", "shape": [64, 64]}]}
  ]
})";

constexpr int64_t kMillisecond = 1'000'000'000;

// A tiny model on four slow ranks: 10 ms a launch, 1 ms a hop and a KB.
class SimulateCommandTest : public ::testing::Test {
 protected:
  SimulateCommandTest() {
    const Topology slow = Topology::Create("slow",
                                           {.latency_ps = 1 * kMillisecond,
                                            .bytes_per_second = 1'000'000},
                                           10 * kMillisecond, 1)
                              .value();
    EXPECT_OK(internal::WriteFile(folder_.File("slow.json"), slow.ToJson()));
    EXPECT_OK(internal::WriteFile(folder_.File("tiny.json"), kTiny));
  }

  ProgramResult Run(const std::string& arguments) {
    return RunTessera(absl::StrCat(
        "simulate --model '", folder_.File("tiny.json"), "' --topology '",
        folder_.File("slow.json"),
        "' --mesh dp_outer=2,dp_inner=2 --tokens 1000 --microbatches 2 "
        "--tflops 0.001 --memory-bandwidth 1000000 ",
        arguments));
  }

  const TemporaryFolder folder_;
};

// Gathers take 10 + 1 + 4.096 ms, beside 8.192 ms of forward and 16.384 ms of
// backward: simulate_step_test.cc has the schedule. A gradient is reduced in
// 15.096 ms, and in 10 + 2 + 8.192 ms over dp_outer. What is reduced is added
// to the main gradient, and that to the weights: 4.096 us a unit.
TEST_F(SimulateCommandTest, PrintsATable) {
  const ProgramResult result = Run("--strategy hsdp");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output,
            "tiny on 4 ranks, mesh 'dp_outer=2,dp_inner=2', topology slow\n"
            "hsdp: param=[R, Flat] grad=[P(sum), Flat] optim=[R, Flat]\n"
            "2 x 1000 tokens a rank, sgd, 0.001 TFLOP/s, 1e+06 GB/s\n"
            "\n"
            "time                       ms       %\n"
            "computation             98.31   54.58\n"
            "exposed communication   81.81   45.42\n"
            "other                    0.00    0.00\n"
            "step                   180.12  100.00\n"
            "\n"
            "axis      calls  received  busy ms  exposed ms\n"
            "dp_outer      2  16.0 KiB    40.38       39.10\n"
            "dp_inner     12  48.0 KiB   150.96       57.81\n"
            "\n"
            "memory                peak\n"
            "main_grad         16.0 KiB\n"
            "main_weight       16.0 KiB\n"
            "model_weight       8.0 KiB\n"
            "unreduced_grad    16.0 KiB\n"
            "unsharded_weight  16.0 KiB\n"
            "all               72.0 KiB\n");
}

TEST_F(SimulateCommandTest, PrintsJson) {
  const ProgramResult result = Run("--strategy hsdp --json");
  EXPECT_EQ(result.exit_status, 0);
  const Json json = Json::parse(result.output);
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["dtype"], "bf16");
  EXPECT_EQ(
      json["units"],
      Json::parse(R"([{"name": "layer", "repeat": 2, "elements": 4096}])"));
  EXPECT_EQ(json["mesh"], "dp_outer=2,dp_inner=2");
  EXPECT_EQ(json["ranks"], 4);
  EXPECT_EQ(json["strategy"], "hsdp");
  EXPECT_EQ(json["placements"],
            "param=[R, Flat] grad=[P(sum), Flat] optim=[R, Flat]");
  EXPECT_EQ(json["topology"], "slow");
  EXPECT_EQ(json["tokens"], 1000);
  EXPECT_EQ(json["microbatches"], 2);
  EXPECT_EQ(json["optimizer"], "sgd");
  EXPECT_EQ(json["prefetch"], 1);
  EXPECT_EQ(json["gradients_in_flight"], 2);
  EXPECT_EQ(json["active_percent"], 100.0);
  EXPECT_EQ(json["tflops"], 0.001);
  EXPECT_EQ(json["memory_gb_per_s"], 1e6);
  // What the hand-made figures of PrintsATable leave out are kernels that only
  // move bytes.
  constexpr double kKernels = 1e-3;
  EXPECT_NEAR(json["step_ms"],
              6 * 15.096 + 3 * 16.384 + 2 * 20.192 + 3 * 0.004096, kKernels);
  EXPECT_NEAR(json["compute_ms"], 98.304 + 2 * 0.004096, kKernels);
  EXPECT_NEAR(json["exposed_total_ms"], 81.812, kKernels);
  EXPECT_NEAR(json["exposed_ms"]["dp_inner"], 6 * 15.096 - 4 * 8.192, kKernels);
  EXPECT_NEAR(json["exposed_ms"]["dp_outer"],
              2 * 20.192 - (16.384 - 15.096 - 0.004096), kKernels);
  EXPECT_NEAR(json["communication_ms"]["dp_inner"], 10 * 15.096, kKernels);
  EXPECT_NEAR(json["communication_ms"]["dp_outer"], 2 * 20.192, kKernels);
  EXPECT_EQ(json["bytes"], Json({{"dp_inner", 49152}, {"dp_outer", 16384}}));
  EXPECT_EQ(json["collectives"], Json::parse(R"([
      {"axis": "dp_inner", "kind": "reduce_scatter", "calls": 4,
       "bytes": 16384},
      {"axis": "dp_inner", "kind": "all_gather", "calls": 8, "bytes": 32768},
      {"axis": "dp_outer", "kind": "all_reduce", "calls": 2,
       "bytes": 16384}])"));
  EXPECT_EQ(json["peak_bytes"], 73728);
  EXPECT_EQ(json["peak_by_tag"], Json({{"main_grad", 16384},
                                       {"main_weight", 16384},
                                       {"model_weight", 8192},
                                       {"unreduced_grad", 16384},
                                       {"unsharded_weight", 16384}}));
}

// AdamW keeps two values for each of the main weight; slots are as many as may
// run ahead.
TEST_F(SimulateCommandTest, CountsStateAndWhatRunsAhead) {
  const auto peaks = [this](const std::string& flags) {
    return Json::parse(Run("--strategy hsdp --json " + flags).output)
        .at("peak_by_tag");
  };
  const Json plain = peaks("");
  const Json adamw = peaks("--optimizer adamw --prefetch 0 --in-flight 1");
  const Json momentum = peaks("--optimizer momentum");
  EXPECT_FALSE(plain.contains("optimizer_state"));
  EXPECT_EQ(momentum["optimizer_state"], plain["main_weight"]);
  EXPECT_EQ(adamw["optimizer_state"].get<int64_t>(),
            2 * plain["main_weight"].get<int64_t>());
  // One slot for two units, not two.
  EXPECT_EQ(2 * adamw["unsharded_weight"].get<int64_t>(),
            plain["unsharded_weight"].get<int64_t>());
  EXPECT_EQ(2 * adamw["unreduced_grad"].get<int64_t>(),
            plain["unreduced_grad"].get<int64_t>());
}

TEST_F(SimulateCommandTest, TakesPlacementsInPlaceOfAStrategy) {
  const std::string hfsdp =
      "param=[R, Flat] grad=[P(sum), Flat] optim=[Flat, Flat]";
  Json named = Json::parse(Run("--strategy hfsdp --json").output);
  EXPECT_EQ(named["placements"], hfsdp);
  named.erase("strategy");
  for (const std::string& text :
       {hfsdp,
        std::string("param=[R,Flat] grad=[P,Flat]  optim=[Flat,Flat]")}) {
    EXPECT_EQ(Json::parse(
                  Run(absl::StrCat("--json --placements '", text, "'")).output),
              named);
  }
  EXPECT_THAT(Run("--placements '" + hfsdp + "'").output,
              HasSubstr("topology slow\n" + hfsdp + "\n"));
}

TEST_F(SimulateCommandTest, SharesOfParametersAndBandwidthChangeTheTimes) {
  const ProgramResult active = Run("--strategy hsdp --active 25");
  EXPECT_THAT(active.output,
              AllOf(HasSubstr(", 25 % of parameters active\n"),
                    HasSubstr("computation             24.58 ")));
  // The topology's bandwidth is what no flag says otherwise.
  const Json json = Json::parse(
      RunTessera("simulate --model gpt2-124m --mesh dp=8 --tokens 64 "
                 "--strategy fsdp --json")
          .output);
  EXPECT_EQ(json["topology"], "h100-ib");
  EXPECT_EQ(json["memory_gb_per_s"], 3350.0);
  EXPECT_EQ(json["tflops"], 400.0);
  const Json narrow = Json::parse(
      RunTessera("simulate --model gpt2-124m --mesh dp=8 --tokens 64 "
                 "--strategy fsdp --memory-bandwidth 335 --json")
          .output);
  EXPECT_NEAR(narrow["compute_ms"].get<double>(),
              10 * json["compute_ms"].get<double>(), 0.01);
}

TEST_F(SimulateCommandTest, WritesATrace) {
  const std::string path = folder_.File("step.json");
  const ProgramResult result =
      Run(absl::StrCat("--strategy hsdp --trace '", path, "'"));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output, Run("--strategy hsdp").output);
  const Json trace = Json::parse(internal::ReadFile(path).value());
  double first = 1e9;
  double last = 0;
  int backwards = 0;
  int64_t most_weights = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      const double begin = event["ts"];
      first = std::min(first, begin);
      last = std::max(last, begin + event["dur"].get<double>());
      backwards += event["name"] == "layer.1 backward" ? 1 : 0;
    } else if (event["name"] == "memory main_grad") {
      most_weights =
          std::max(most_weights, event["args"]["bytes"].get<int64_t>());
    }
  }
  EXPECT_NEAR(last - first, 180'124, 1);  // in microseconds
  EXPECT_EQ(backwards, 2);
  EXPECT_EQ(most_weights, 16384);
}

TEST_F(SimulateCommandTest, JsonIsAsTheSchemaSays) {
  const JsonSchema schema(
      Json::parse(internal::ReadFile(DOCS "/simulate.schema.json").value()));
  for (const char* mesh : {"dp=1", "dp=4", "a=2,b=1,c=2"}) {
    for (const char* strategy :
         {"ddp", "zero1", "zero2", "zero3", "hsdp", "hfsdp"}) {
      const std::string arguments =
          absl::StrCat("simulate --model mixtral-8x7b --tokens 64 --json ",
                       "--mesh ", mesh, " --strategy ", strategy);
      SCOPED_TRACE(arguments);
      const ProgramResult result = RunTessera(arguments);
      EXPECT_EQ(result.exit_status, 0) << result.output;
      EXPECT_EQ(schema.FaultOf(Json::parse(result.output)), "");
    }
  }
  // The schema tells documents that are wrong.
  const Json right = Json::parse(Run("--strategy hsdp --json").output);
  EXPECT_EQ(schema.FaultOf(right), "");
  for (const auto& [key, value] : right.items()) {
    Json another = right;
    another[key] = -1;
    EXPECT_NE(schema.FaultOf(another), "") << key;
    Json missing = right;
    missing.erase(key);
    EXPECT_EQ(schema.FaultOf(missing) == "", key == "strategy") << key;
  }
  for (const char* key :
       {"/units/0/name", "/units/0/elements", "/collectives/0/axis",
        "/collectives/0/kind", "/collectives/0/calls"}) {
    Json another = right;
    another[Json::json_pointer(key)] = -1;
    EXPECT_NE(schema.FaultOf(another), "") << key;
  }
  for (const char* key : {"/exposed_ms/dp_outer", "/communication_ms/dp_inner",
                          "/bytes/dp_inner", "/peak_by_tag/main_grad"}) {
    Json another = right;
    another[Json::json_pointer(key)] = "much";
    EXPECT_NE(schema.FaultOf(another), "") << key;
  }
  Json unknown = right;
  unknown["units"][0]["colour"] = "red";
  EXPECT_NE(schema.FaultOf(unknown), "");
}

}  // namespace
}  // namespace tessera::testing
