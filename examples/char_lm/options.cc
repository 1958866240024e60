#include "char_lm/options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "char_lm/text.h"
#include "tessera/base/status_macros.h"

namespace char_lm {
namespace {

constexpr char kAbout[] =
    "Trains a character-level transformer with its weights, gradients and\n"
    "optimizer sharded over a mesh of ranks, which are threads or processes,\n"
    "and checks the losses against a run in one process.";

constexpr char kExamples[] =
    "Examples:\n"
    "  char_lm\n"
    "  char_lm --mesh dp=4 --strategy fsdp --microbatches 1\n"
    "  char_lm --mesh dp_outer=2,dp_inner=3 --text README.md --steps 20\n"
    "  char_lm --optimizer muon --dtype bf16 --clip 1\n"
    "  char_lm --mesh dp_outer=2,dp_inner=2,tp=2\n"
    "  char_lm --placements \"param=[R,R] grad=[P,Flat] "
    "optim=[Flat,Flat]\"\n"
    "  mpirun -n 4 char_lm --backend mpi\n"
    "  char_lm --backend nccl --mesh dp=2\n"
    "  torchrun --no-python --nproc-per-node 4 env MASTER_PORT=29600 \\\n"
    "      char_lm --backend nccl\n";

// CLI11's messages may have several lines.
std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// CLI11's validators and transformers: they return an error, or nothing.

std::string CheckPositive(absl::string_view name, const std::string& text) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && std::isfinite(value) && value > 0) {
    return {};
  }
  return absl::StrCat(name, " is '", text, "', want a finite number above 0");
}

std::string CheckLearningRate(const std::string& text) {
  return CheckPositive("rate", text);
}

std::string CheckNorm(const std::string& text) {
  return CheckPositive("norm", text);
}

// For CLI::Option::transform: a decimal number; CLI11 alone takes a leading 0
// for octal.
template <typename T>
CLI::Validator WholeNumber(T least, T greatest) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        T number = 0;
        if (!absl::SimpleAtoi(text, &number) || number < least ||
            number > greatest) {
          return absl::StrCat("want a whole number from ", least, " to ",
                              greatest, ", found '", text, "'");
        }
        text = absl::StrCat(number);
        return {};
      },
      "");
}

// The data-parallel axes, outer before inner, cut from the last to the first.
absl::Status CheckPlacements(const Options& options) {
  std::vector<std::string> axes;
  for (int axis : options.DataParallelAxes()) {
    axes.push_back(options.mesh.axis(axis).name);
  }
  const std::vector<std::string> cut_order(axes.rbegin(), axes.rend());
  return tessera::ValidatePlacements(options.placements, axes, cut_order);
}

absl::Status CheckMesh(const tessera::DeviceMesh& mesh,
                       const std::string& text) {
  if (mesh.end_rank() != mesh.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--mesh ", text, " has ", mesh.size(), " ranks up to rank ",
        mesh.end_rank() - 1, ", want all ranks from 0"));
  }
  constexpr int kMostRanks = 64;
  if (mesh.size() > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mesh ", text, " has ", mesh.size(),
                     " ranks, want at most ", kMostRanks, " threads"));
  }
  if (mesh.num_axes() == 1 && mesh.axis(0).name == kTensorAxis) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mesh ", text, " has no data-parallel axis beside '",
                     kTensorAxis, "', want one, as dp=1"));
  }
  return absl::OkStatus();
}

// What needs memory or clocks of the host.
absl::Status CheckOnGpus(const Options& options) {
  if (!options.on_gpus()) return absl::OkStatus();
  if (options.tensor_parallel_size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend nccl has no axis '", kTensorAxis,
                     "': it would gather rows that the host keeps"));
  }
  if (!options.trace_path.empty()) {
    return absl::InvalidArgumentError(
        "--backend nccl has no --trace: GPUs are traced with Nsight Systems");
  }
  return absl::OkStatus();
}

}  // namespace

double DefaultLearningRate(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return 0.2;
    case Optimizer::kAdamW:
      return 0.003;
    case Optimizer::kMuon:
      return 0.02;
  }
  return 0;
}

std::vector<int> Options::DataParallelAxes() const {
  std::vector<int> axes;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.axis(axis).name != kTensorAxis) axes.push_back(axis);
  }
  return axes;
}

int Options::data_parallel_size() const {
  int size = 1;
  for (int axis : DataParallelAxes()) size *= mesh.axis(axis).size;
  return size;
}

int Options::DataParallelRank(int rank) const {
  const tessera::MeshCoords coords = *mesh.CoordsOf(rank);
  int place = 0;
  for (int axis : DataParallelAxes()) {
    place = place * mesh.axis(axis).size + coords[axis];
  }
  return place;
}

absl::StatusOr<Request> ParseCommandLine(int argc, const char* const* argv) {
  Options options;
  options.text_path = kDefaultTextPath;
  std::string mesh = "dp_outer=2,dp_inner=2";
  std::string strategy = "hsdp";
  std::string placements;
  std::string against = "hfsdp";
  std::string zero_grad = "release";
  std::string streams = "inline";
  std::string optimizer = "sgd";
  std::string dtype = "f32";
  std::string backend = "local";
  bool no_reference = false;

  const std::map<std::string, tessera::ZeroGrad> zero_names = {
      {"release", tessera::ZeroGrad::kRelease},
      {"fill", tessera::ZeroGrad::kFill}};
  const std::map<std::string, tessera::CpuStreams> stream_names = {
      {"inline", tessera::CpuStreams::kInline},
      {"worker", tessera::CpuStreams::kWorker}};
  const std::map<std::string, Optimizer> optimizer_names = {
      {"sgd", Optimizer::kSgd},
      {"adamw", Optimizer::kAdamW},
      {"muon", Optimizer::kMuon}};
  const std::map<std::string, tessera::DType> dtype_names = {
      {"f32", tessera::DType::kF32}, {"bf16", tessera::DType::kBF16}};
  const std::map<std::string, Backend> backend_names = {
      {"local", Backend::kLocal},
      {"mpi", Backend::kMpi},
      {"nccl", Backend::kNccl}};
  std::vector<std::string> strategies;
  for (absl::string_view name : tessera::StrategyNames()) {
    strategies.emplace_back(name);
  }
  std::vector<std::string> strategies_or_none = strategies;
  strategies_or_none.emplace_back("none");

  CLI::App app(kAbout, "char_lm");
  app.footer(kExamples);
  app.add_option("--text", options.text_path, "File or directory to learn")
      ->capture_default_str();
  app.add_option("--mesh", mesh,
                 "Mesh axes, outer before inner; all are data-parallel but tp, "
                 "which shares out layer norms")
      ->capture_default_str();
  CLI::Option* const strategy_option =
      app.add_option("--strategy", strategy,
                     "Short for three lists of placements")
          ->check(CLI::IsMember(strategies))
          ->capture_default_str();
  app.add_option("--placements", placements,
                 "The three lists themselves, an entry for each data-parallel "
                 "axis: "
                 "\"param=[R,Flat] grad=[P,Flat] optim=[Flat,Flat]\"")
      ->excludes(strategy_option);
  app.add_option("--against", against,
                 "A strategy to hold memory and traffic against, or none")
      ->check(CLI::IsMember(strategies_or_none))
      ->capture_default_str();
  app.add_option("--microbatches", options.microbatches, "Per step")
      ->transform(WholeNumber(1, 1000))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Optimizer steps")
      ->transform(WholeNumber(1, 1000000))
      ->capture_default_str();
  app.add_option("--optimizer", optimizer,
                 "sgd, adamw, or muon: for matrices, with AdamW for the rest")
      ->check(CLI::IsMember(&optimizer_names))
      ->capture_default_str();
  const CLI::Option* const rate_option =
      app.add_option("--lr", options.learning_rate,
                     "Learning rate [0.2 for sgd, 0.003 for adamw, 0.02 for "
                     "muon]")
          ->check(CheckLearningRate);
  app.add_option("--dtype", dtype, "Of weights and gradients; the rest is f32")
      ->check(CLI::IsMember(&dtype_names))
      ->capture_default_str();
  app.add_option("--clip", options.clip, "Norm to clip gradients to [none]")
      ->check(CheckNorm);
  app.add_option("--chunk-bytes", options.chunk_bytes,
                 "Most bytes of a chunk of the all-reduce along tp [1 GiB]")
      ->transform(WholeNumber(int64_t{1}, int64_t{1} << 40));
  app.add_option("--zero-grad", zero_grad,
                 "How gradients become zero: release or fill")
      ->check(CLI::IsMember(&zero_names))
      ->capture_default_str();
  app.add_option("--streams", streams,
                 "Who runs streams: inline (the rank's thread) or worker")
      ->check(CLI::IsMember(&stream_names))
      ->capture_default_str();
  app.add_option("--backend", backend,
                 "Ranks are threads (local), what mpirun starts (mpi), or have "
                 "a GPU each (nccl): what a launcher starts that sets RANK, "
                 "else threads")
      ->check(CLI::IsMember(&backend_names))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Sequences per rank and microbatch")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  // Whether a model can have these sizes is for the model to say.
  using Limits = std::numeric_limits<int64_t>;
  const CLI::Validator size = WholeNumber(Limits::min(), Limits::max());
  app.add_option("--context", options.model.context, "Characters a sequence")
      ->transform(size)
      ->capture_default_str();
  app.add_option("--width", options.model.width)
      ->transform(size)
      ->capture_default_str();
  app.add_option("--heads", options.model.heads)
      ->transform(size)
      ->capture_default_str();
  app.add_option("--layers", options.model.layers)
      ->transform(size)
      ->capture_default_str();
  app.add_option("--mlp-width", options.model.mlp_width)
      ->transform(size)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of weights and batches")
      ->transform(
          WholeNumber(uint64_t{0}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  app.add_option("--trace", options.trace_path,
                 "File for the last step of all ranks as a trace for "
                 "Perfetto; with --backend mpi, FILE.rankN for each");
  app.add_flag("--no-reference", no_reference,
               "Do not compare with runs in one process");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(FirstLine(error.what()));
  }

  options.zero_grad = zero_names.at(zero_grad);
  options.streams = stream_names.at(streams);
  options.optimizer = optimizer_names.at(optimizer);
  options.dtype = dtype_names.at(dtype);
  if (rate_option->count() == 0) {
    options.learning_rate = DefaultLearningRate(options.optimizer);
  }
  options.backend = backend_names.at(backend);
  options.compare = !no_reference;
  TESSERA_ASSIGN_OR_RETURN(options.mesh, tessera::DeviceMesh::Parse(mesh));
  TESSERA_RETURN_IF_ERROR(CheckMesh(options.mesh, mesh));
  options.placements_name = placements.empty() ? strategy : "placements";
  TESSERA_ASSIGN_OR_RETURN(
      options.placements,
      placements.empty()
          ? tessera::PlacementsFor(
                strategy, static_cast<int>(options.DataParallelAxes().size()))
          : tessera::ParseUnitPlacements(placements));
  TESSERA_RETURN_IF_ERROR(CheckPlacements(options));
  TESSERA_RETURN_IF_ERROR(CheckOnGpus(options));
  if (against != "none") options.against = against;
  TESSERA_RETURN_IF_ERROR(ModelConfig::Validate(options.model));
  return options;
}

}  // namespace char_lm
