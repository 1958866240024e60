#include "tools/tessera-bench/bench_command.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tessera/base/status_macros.h"
#include "tessera/sweep/report.h"
#include "tessera/sweep/sweep.h"
#include "tools/tessera/number_flags.h"
#include "tools/tessera/values.h"

namespace tessera::tools {
namespace {

constexpr char kAbout[] =
    "Measures redistributions over many meshes, tensors and layouts, beside "
    "what was\npredicted, a memcpy and the bare collectives. Ranks are threads "
    "of this process.";

constexpr char kExamples[] =
    "Lists have semicolons between their items. A layout without brackets, "
    "\"S(0)\", is\nthat of every mesh axis. What does not fit together is "
    "skipped, and the table says\nwhy.\n\n"
    "Examples:\n"
    "  tessera-bench --world 8 --factorizations --from \"P\" --to \"R;S(0)\"\n"
    "  tessera-bench --meshes \"8;2x4;dp=2,tp=4\" --tensors \"1024x1024;5x3\" "
    "\\\n"
    "      --all-pairs --csv > sweep.csv\n"
    "  tessera-bench --meshes dp=2,tp=2 --from \"[P, S(0)]\" --to \"[S(0), "
    "R]\" \\\n"
    "      --bytes 64KiB:64MiB --dtype bf16\n";

absl::Status Wrong(absl::string_view flag, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", problem));
}

std::vector<std::string> Items(const std::string& list) {
  std::vector<std::string> items;
  for (absl::string_view item : absl::StrSplit(list, ';')) {
    item = absl::StripAsciiWhitespace(item);
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

// The flags of the command line.
class BenchCommand {
 public:
  // LIFETIME: the app writes to this object when it parses.
  void AddFlags(CLI::App& app);
  absl::StatusOr<std::string> Run() const;

 private:
  absl::StatusOr<SweepSpec> Spec() const;
  absl::StatusOr<std::vector<DeviceMesh>> Meshes() const;
  absl::StatusOr<std::vector<Shape>> Shapes() const;
  absl::StatusOr<std::vector<int64_t>> Sizes() const;

  int world_ = 0;
  bool factorizations_ = false;
  std::string meshes_;
  std::string tensors_ = "1024x1024";
  std::string dtype_ = "f32";
  std::string bytes_;
  std::string from_;
  std::string to_;
  bool all_pairs_ = false;
  std::string backend_ = "local";
  std::string topology_ = "local-cpu";
  int turns_ = SweepSpec().turns;
  bool csv_ = false;
  bool json_ = false;
};

void BenchCommand::AddFlags(CLI::App& app) {
  app.add_option("--world", world_, "Number of ranks, with --factorizations")
      ->transform(WholeNumber(0, std::numeric_limits<int>::max()));
  app.add_flag("--factorizations", factorizations_,
               "All meshes of so many ranks: 8, 2x4, 4x2, 2x2x2 of 8");
  app.add_option("--meshes", meshes_, "Or these: \"8;2x4;dp=2,tp=4\"");
  app.add_option("--tensors", tensors_, "Extents: \"4096x4096;5x3\"")
      ->capture_default_str();
  app.add_option("--dtype", dtype_, "f32, f64, bf16, f16, i32 or i64")
      ->capture_default_str();
  app.add_option("--bytes", bytes_,
                 "Make dim 0 of each tensor as long as gives it so many "
                 "bytes, times 4 each: 64KiB:64MiB");
  app.add_option("--from", from_, "Layouts to begin with: \"[P, S(0)];S(0)\"");
  app.add_option("--to", to_, "Layouts to end with");
  app.add_flag("--all-pairs", all_pairs_,
               "Or all pairs of layouts of R, S(d) and P(sum)");
  app.add_option("--backend", backend_, "What moves bytes: local")
      ->check(CLI::IsMember({"local"}))
      ->capture_default_str();
  app.add_option("--topology", topology_, "Prices: " + TopologyChoices())
      ->capture_default_str();
  app.add_option("--turns", turns_, "Times are medians of so many turns")
      ->transform(WholeNumber(1, 1000))
      ->capture_default_str();
  CLI::Option* const csv = app.add_flag("--csv", csv_, "Print CSV");
  app.add_flag("--json", json_, "Print JSON")->excludes(csv);
}

absl::StatusOr<std::vector<DeviceMesh>> BenchCommand::Meshes() const {
  if (factorizations_ == !meshes_.empty()) {
    return Wrong("--meshes", "want either this or --factorizations");
  }
  if (factorizations_) {
    auto meshes = Factorizations(world_);
    if (meshes.ok()) return meshes;
    return Wrong("--world", meshes.status().message());
  }
  if (world_ != 0) return Wrong("--world", "want --factorizations with it");
  std::vector<DeviceMesh> meshes;
  for (const std::string& text : Items(meshes_)) {
    absl::StatusOr<DeviceMesh> mesh = ParseSweepMesh(text);
    if (!mesh.ok()) return Wrong("--meshes", mesh.status().message());
    meshes.push_back(*std::move(mesh));
  }
  return meshes;
}

absl::StatusOr<std::vector<Shape>> BenchCommand::Shapes() const {
  std::vector<Shape> shapes;
  for (const std::string& text : Items(tensors_)) {
    absl::StatusOr<Shape> shape = Shape::Parse(
        absl::StrCat("[", absl::StrReplaceAll(text, {{"x", ","}}), "]"));
    if (!shape.ok()) return Wrong("--tensors", shape.status().message());
    shapes.push_back(*std::move(shape));
  }
  return shapes;
}

absl::StatusOr<std::vector<int64_t>> BenchCommand::Sizes() const {
  constexpr int64_t kFactor = 4;
  std::vector<int64_t> sizes;
  if (bytes_.empty()) return sizes;
  const std::vector<std::string> ends = absl::StrSplit(bytes_, ':');
  TESSERA_ASSIGN_OR_RETURN(const int64_t least,
                           ParseBytes("--bytes", ends.front()));
  TESSERA_ASSIGN_OR_RETURN(const int64_t most,
                           ParseBytes("--bytes", ends.back()));
  if (ends.size() > 2 || least < 1 || least > most) {
    return Wrong("--bytes", absl::StrCat("want a size above 0, or two, the "
                                         "smaller first, as 64KiB:64MiB, "
                                         "found '",
                                         bytes_, "'"));
  }
  sizes.push_back(least);
  while (sizes.back() <= most / kFactor) {
    sizes.push_back(sizes.back() * kFactor);
  }
  return sizes;
}

absl::StatusOr<SweepSpec> BenchCommand::Spec() const {
  SweepSpec spec;
  TESSERA_ASSIGN_OR_RETURN(spec.meshes, Meshes());
  TESSERA_ASSIGN_OR_RETURN(spec.shapes, Shapes());
  TESSERA_ASSIGN_OR_RETURN(spec.bytes, Sizes());
  const absl::StatusOr<DType> dtype = ParseDType(dtype_);
  if (!dtype.ok()) return Wrong("--dtype", dtype.status().message());
  spec.dtype = *dtype;
  spec.from = Items(from_);
  spec.to = Items(to_);
  spec.all_pairs = all_pairs_;
  if (all_pairs_ == (!from_.empty() || !to_.empty())) {
    return Wrong("--from", "want this and --to, or else --all-pairs");
  }
  TESSERA_ASSIGN_OR_RETURN(spec.topology, ParseTopology(topology_));
  spec.turns = turns_;
  return spec;
}

absl::StatusOr<std::string> BenchCommand::Run() const {
  TESSERA_ASSIGN_OR_RETURN(const SweepSpec spec, Spec());
  std::vector<SweepRow> rows;
  TESSERA_RETURN_IF_ERROR(
      RunSweep(spec, [&](const SweepRow& row) { rows.push_back(row); }));
  if (csv_) return SweepCsv(rows);
  return json_ ? SweepJson(rows) : SweepTable(rows);
}

absl::Status Complaint(absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(
      "tessera-bench: ",
      absl::StrReplaceAll(absl::StripAsciiWhitespace(problem), {{"\n", " "}})));
}

}  // namespace

absl::StatusOr<std::string> RunBench(int argc, const char* const* argv) {
  CLI::App app(kAbout, "tessera-bench");
  app.footer(kExamples);
  BenchCommand command;
  command.AddFlags(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    return Complaint(error.what());
  }
  absl::StatusOr<std::string> text = command.Run();
  if (text.ok()) return text;
  return Complaint(text.status().message());
}

}  // namespace tessera::tools
