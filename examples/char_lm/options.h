#ifndef CHAR_LM_OPTIONS_H_
#define CHAR_LM_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "char_lm/model.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/placements.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/tensor/dtype.h"

namespace char_lm {

class Process;

// Where ranks come from.
enum class Backend {
  kLocal,  // threads of this process
  kMpi,    // processes that mpirun starts, of which this is one
  kNccl,   // with a GPU each: threads, or processes that a launcher starts
};

// The mesh axis along which ranks share out the rows of layer norms. All others
// are data-parallel, outer before inner.
inline constexpr char kTensorAxis[] = "tp";

enum class Optimizer {
  kSgd,
  kAdamW,
  kMuon,  // for the matrices of blocks; AdamW for all other parameters
};

// What `optimizer` learns well with by default.
double DefaultLearningRate(Optimizer optimizer);

// A training run.
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
  Optimizer optimizer = Optimizer::kSgd;
  double learning_rate = 0.2;
  // Of weights and gradients; the model computes in f32, to which it converts
  // them. Main weights and accumulated gradients are f32.
  tessera::DType dtype = tessera::DType::kF32;
  // Gradients are clipped to this norm; none: not.
  std::optional<double> clip = std::nullopt;
  // Of the all-reduce of norm gradients along kTensorAxis: as
  // CoalescedAllReduce.
  std::optional<int64_t> chunk_bytes = std::nullopt;
  // Whether that all-reduce takes place. Without it, training is wrong.
  bool sums_norm_gradients = true;
  uint64_t seed = 1;
  tessera::ZeroGrad zero_grad = tessera::ZeroGrad::kRelease;
  tessera::CpuStreams streams = tessera::CpuStreams::kInline;
  Backend backend = Backend::kLocal;
  // This one, once it is known; null where ranks are threads.
  std::shared_ptr<Process> process;
  bool compare = true;  // with the oracle and big-batch runs
  // A file for the last step as a trace; empty: none.
  std::string trace_path;

  // Whether ranks keep weights and all else in memory of GPUs, which the host
  // cannot touch.
  bool on_gpus() const { return backend == Backend::kNccl; }
  // All axes of the mesh but kTensorAxis.
  std::vector<int> DataParallelAxes() const;
  int data_parallel_size() const;
  int tensor_parallel_size() const {
    return mesh.size() / data_parallel_size();
  }
  // Which part of the data a rank sees: its row-major place along the
  // data-parallel axes.
  int DataParallelRank(int rank) const;
};

// What the command line asks for: a run, or only words to print.
using Request = std::variant<Options, std::string>;

// Reads the command line. ERRORS: InvalidArgument in one line.
absl::StatusOr<Request> ParseCommandLine(int argc, const char* const* argv);

}  // namespace char_lm

#endif  // CHAR_LM_OPTIONS_H_
