#ifndef CHAR_LM_OPTIONS_H_
#define CHAR_LM_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "char_lm/model.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/placements.h"
#include "tessera/mesh/device_mesh.h"

namespace char_lm {

// Where ranks come from.
enum class Backend {
  kLocal,  // threads of this process
  kMpi,    // processes that mpirun starts, of which this is one
};

// A training run. All of the mesh's axes are data-parallel, outer before inner.
struct Options {
  ModelConfig model;  // `vocab` is the text's
  std::string text_path;
  tessera::DeviceMesh mesh;
  std::string placements_name;  // "hsdp", or "placements"
  tessera::UnitPlacements placements;
  // A strategy to hold memory and traffic against; empty: none.
  std::string against;
  int64_t batch = 4;  // sequences per rank and microbatch
  int microbatches = 3;
  int steps = 60;
  double learning_rate = 0.2;
  uint64_t seed = 1;
  tessera::ZeroGrad zero_grad = tessera::ZeroGrad::kRelease;
  tessera::CpuStreams streams = tessera::CpuStreams::kInline;
  Backend backend = Backend::kLocal;
  std::optional<tessera::MpiWorld> world;  // of the processes, once it is there
  bool compare = true;                     // with the oracle and big-batch runs
  // A file for the last step as a trace; empty: none.
  std::string trace_path;
};

// What the command line asks for: a run, or only words to print.
using Request = std::variant<Options, std::string>;

// Reads the command line. ERRORS: InvalidArgument in one line.
absl::StatusOr<Request> ParseCommandLine(int argc, const char* const* argv);

}  // namespace char_lm

#endif  // CHAR_LM_OPTIONS_H_
