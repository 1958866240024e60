#include "tools/tessera/program.h"

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tools/tessera/check_command.h"
#include "tools/tessera/layout_command.h"
#include "tools/tessera/plan_command.h"
#include "tools/tessera/show_command.h"
#include "tools/tessera/simulate_command.h"

namespace tessera::tools {
namespace {

constexpr char kAbout[] =
    "Plans how a tensor gets from one sharding to another, shows who holds "
    "what,\nchecks that plans stay as they are, tells how much padding the "
    "flat buffers\nof a model have, and what a training step costs.";

constexpr char kExamples[] =
    "Examples:\n"
    "  tessera plan --mesh dp=2,tp=4 --shape 4096,14336 --from \"[P(sum), "
    "S(0)]\" \\\n"
    "      --to \"[R, S(1)]\" --topology h100-ib\n"
    "  tessera show --mesh dp=2,tp=2 --shape 8,6 --layout \"[S(0), S(1)]\"\n"
    "  tessera check plans.json\n"
    "  tessera layout --model llama-3.1-8b --ranks 256 --granularity row\n"
    "  tessera simulate --model llama-3.1-8b --mesh dp=256 --strategy fsdp "
    "--tokens 8192\n"
    "`tessera COMMAND --help` says more.\n";

constexpr char kPlanExamples[] =
    "Layouts are one placement per mesh axis: R (replicated), S(d) (tensor dim "
    "d\nsharded), P(op) (partial: sum, avg, min, max, product).\n\n"
    "Examples:\n"
    "  tessera plan --mesh dp=2,tp=4 --shape 4096,14336 --from \"[P(sum), "
    "S(0)]\" \\\n"
    "      --to \"[R, S(1)]\" --max-workspace 64MiB\n"
    "  tessera plan --mesh dp=8 --shape 1000 --dtype f32 --from \"[P]\" "
    "--to \"[R]\" \\\n"
    "      --topology ethernet-100g --alternatives 3\n"
    "  tessera plan --mesh tp=4 --shape 64,64 --from \"[S(0)]\" --to "
    "\"[S(1)]\" "
    "\\\n"
    "      --to-mesh tp=2@4 --json\n";

constexpr char kShowExamples[] =
    "Cells name the ranks that hold them: '0-3' and '0,4' hold the same, "
    "'0 + 4'\nhold addends.\n\n"
    "Examples:\n"
    "  tessera show --mesh dp=2,tp=2 --shape 8,6 --layout \"[S(0), S(1)]\"\n"
    "  tessera show --mesh x=2,y=2 --shape 5 --layout \"[S(0)[1], S(0)[0]]\" "
    "\\\n"
    "      --svg layout.svg\n";

constexpr char kCheckExamples[] =
    "Plans are made anew and compared with what the files say. Exits with 1 if "
    "one\ndiffers.\n\n"
    "Examples:\n"
    "  tessera check plans.json\n"
    "  tessera check plans.json --update    # accept what the planner makes\n";

constexpr char kLayoutExamples[] =
    "Every unit of the model is a flat buffer, cut into equal parts, one per "
    "rank. Parts\nend between elements, between rows along the last dim "
    "(inner-row), between rows\nalong dim 0 (row), or between blocks of those "
    "(rows:K).\n\n"
    "A file of a model is like this:\n"
    "  {\"model\": \"mine\", \"dtype\": \"bf16\", \"units\": [\n"
    "    {\"name\": \"layer\", \"repeat\": 12, \"params\": [\n"
    "      {\"name\": \"w\", \"shape\": [768, 3072]}, ...]}, ...]}\n\n"
    "Examples:\n"
    "  tessera layout --model llama-3.1-8b --ranks 256 --granularity row "
    "--compare\n"
    "  tessera layout --model gpt-oss-120b --ranks 1024 --granularity "
    "inner-row --json\n"
    "  tessera layout --model mixtral-8x7b --ranks 48 --granularity rows:128 "
    "\\\n"
    "      --svg layer.svg --unit layer\n";

constexpr char kSimulateExamples[] =
    "One rank of the mesh runs its program on a simulated device: the runtime "
    "as it is,\nand launches in place of the layers' mathematics, of 2 flops "
    "per parameter\nand token forward and 4 backward. Every unit of the model "
    "is gathered and\nreduced by itself.\n\n"
    "Examples:\n"
    "  tessera simulate --model llama-3.1-70b --mesh dp_outer=16,dp_inner=64 "
    "\\\n"
    "      --strategy hsdp --tokens 8192 --microbatches 4\n"
    "  tessera simulate --model llama-3.1-405b --mesh "
    "dp_outer=512,dp_inner=256 \\\n"
    "      --placements \"param=[R,Flat] grad=[P,Flat] optim=[Flat,Flat]\" "
    "\\\n"
    "      --tokens 8192 --topology gb200-nvl72 --tflops 1000 --json\n"
    "  tessera simulate --model mixtral-8x7b --mesh dp=128 --strategy zero3 "
    "\\\n"
    "      --tokens 4096 --active 28 --trace step.json\n";

// What CLI11 complains about, in one line.
std::string OneLine(std::string text) {
  text = text.substr(0, text.find_last_not_of('\n') + 1);
  return absl::StrReplaceAll(text, {{"\n", " "}});
}

absl::Status Complaint(absl::string_view command, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(
      "tessera", command.empty() ? "" : " ", command, ": ", problem));
}

absl::Status NoCommand(int argc, const char* const* argv) {
  const std::string found = argc < 2 ? "none" : absl::StrCat("'", argv[1], "'");
  return Complaint(
      "", absl::StrCat("want a command, plan, show, check, layout or simulate, "
                       "found ",
                       found));
}

}  // namespace

absl::StatusOr<Outcome> RunTool(int argc, const char* const* argv) {
  CLI::App app(kAbout, "tessera");
  app.require_subcommand(1);
  app.footer(kExamples);

  PlanCommand plan;
  CLI::App* const plan_app = app.add_subcommand(
      "plan", "Print the cheapest way from one layout to another");
  plan_app->footer(kPlanExamples);
  plan.AddFlags(*plan_app);

  ShowCommand show;
  CLI::App* const show_app =
      app.add_subcommand("show", "Print which ranks hold what");
  show_app->footer(kShowExamples);
  show.AddFlags(*show_app);

  CheckCommand check;
  CLI::App* const check_app =
      app.add_subcommand("check", "Compare golden plans with today's");
  check_app->footer(kCheckExamples);
  check.AddFlags(*check_app);

  LayoutCommand layout;
  CLI::App* const layout_app = app.add_subcommand(
      "layout", "Print how much padding a model's flat buffers have");
  layout_app->footer(kLayoutExamples);
  layout.AddFlags(*layout_app);

  SimulateCommand simulate;
  CLI::App* const simulate_app = app.add_subcommand(
      "simulate", "Print what a training step costs one of many ranks");
  simulate_app->footer(kSimulateExamples);
  simulate.AddFlags(*simulate_app);

  const auto command = [&]() -> std::string {
    const std::vector<CLI::App*> parsed = app.get_subcommands();
    return parsed.empty() ? "" : parsed[0]->get_name();
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Outcome{app.help()};
  } catch (const CLI::ParseError& error) {
    if (command().empty()) return NoCommand(argc, argv);
    return Complaint(command(), OneLine(error.what()));
  }
  const absl::StatusOr<Outcome> outcome = command() == "plan"    ? plan.Run()
                                          : command() == "show"  ? show.Run()
                                          : command() == "check" ? check.Run()
                                          : command() == "layout"
                                              ? layout.Run()
                                              : simulate.Run();
  if (outcome.ok()) return outcome;
  return Complaint(command(), OneLine(std::string(outcome.status().message())));
}

}  // namespace tessera::tools
