#include "tests/gpu/captured_steps.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/optimizer.h"

namespace tessera::testing {
namespace {

constexpr int kSteps = 5;
constexpr int kMicrobatches = 2;

absl::Status CudaOk(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(cudaGetErrorString(error));
}

// Two units whose gradient is half their weight, computed by kernels alone.
class Training {
 public:
  static absl::StatusOr<std::unique_ptr<Training>> Create(Communicator& world);

  absl::Status Step();
  absl::StatusOr<std::vector<float>> Weights();
  Context& context() { return *context_; }
  Stream& compute() { return context_->compute(); }

 private:
  absl::Status Backward(Unit& unit);

  std::unique_ptr<Context> context_;
  std::unique_ptr<SgdOptimizer> optimizer_;
};

absl::StatusOr<std::unique_ptr<Training>> Training::Create(
    Communicator& world) {
  auto training = std::make_unique<Training>();
  FsdpOptions options;
  TESSERA_ASSIGN_OR_RETURN(
      options.mesh, DeviceMesh::Parse(absl::StrCat("dp=", world.size())));
  TESSERA_ASSIGN_OR_RETURN(options.placements, PlacementsFor("zero3", 1));
  TESSERA_ASSIGN_OR_RETURN(training->context_,
                           Context::Create(options, world, world.stream()));
  for (const char* name : {"first", "second"}) {
    UnitBuilder builder = training->context_->NewUnit(name);
    TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                             TensorMeta::Create(DType::kBF16, {97, 33}));
    builder.Add("weight", meta);
    TESSERA_RETURN_IF_ERROR(builder.Build().status());
  }
  TESSERA_RETURN_IF_ERROR(training->context_->Prepare());
  std::vector<float> values(97 * 33);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 101) / 64.0f - 0.5f;
  }
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                           TensorMeta::Create(DType::kF32, {97, 33}));
  for (const auto& unit : training->context_->units()) {
    TESSERA_RETURN_IF_ERROR(
        unit->LoadWeight(0, TensorView(values.data(), meta)));
  }
  training->optimizer_ =
      std::make_unique<SgdOptimizer>(*training->context_, 0.25);
  return training;
}

absl::Status Training::Backward(Unit& unit) {
  unit.BeforeBackward();
  TESSERA_ASSIGN_OR_RETURN(const TensorView weight, unit.weight(0));
  TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                           unit.grad(0, GradientWrite::kOverwrite));
  Kernels& kernels = compute().device().kernels();
  TESSERA_RETURN_IF_ERROR(kernels.Copy(compute(), gradient, weight));
  TESSERA_RETURN_IF_ERROR(kernels.Scale(compute(), gradient, 0.5));
  unit.AfterBackward();
  return absl::OkStatus();
}

absl::Status Training::Step() {
  const auto units = context_->units();
  for (int m = 0; m < kMicrobatches; ++m) {
    Microbatch scope =
        context_->OpenMicrobatch({.is_last = m + 1 == kMicrobatches});
    for (const auto& unit : units) {
      unit->BeforeForward();
      unit->AfterForward();
    }
    for (size_t u = units.size(); u-- > 0;) {
      TESSERA_RETURN_IF_ERROR(Backward(*units[u]));
    }
    TESSERA_RETURN_IF_ERROR(scope.Finish());
  }
  TESSERA_RETURN_IF_ERROR(optimizer_->Step());
  return context_->ZeroGradients(ZeroGrad::kFill);
}

absl::StatusOr<std::vector<float>> Training::Weights() {
  std::vector<float> all;
  for (const auto& unit : context_->units()) {
    TESSERA_ASSIGN_OR_RETURN(const ShardedTensor weight, unit->main_weight(0));
    std::vector<float> piece(weight.local().num_elements());
    TESSERA_RETURN_IF_ERROR(compute().device().kernels().CopyToHost(
        compute(), piece.data(), weight.local()));
    TESSERA_RETURN_IF_ERROR(context_->Synchronize());
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return all;
}

// What the context's streams are given in one step, as a graph.
absl::StatusOr<cudaGraphExec_t> CaptureStep(Training& training) {
  const auto stream =
      static_cast<cudaStream_t>(training.compute().native_handle());
  TESSERA_RETURN_IF_ERROR(training.context().Synchronize());
  TESSERA_RETURN_IF_ERROR(
      CudaOk(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
  absl::Status status = training.context().JoinStreams();
  if (status.ok()) status = training.Step();
  if (status.ok()) status = training.context().JoinStreams();
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  const absl::Cleanup destroy = [graph] {
    if (graph != nullptr) cudaGraphDestroy(graph);
  };
  TESSERA_RETURN_IF_ERROR(status);
  TESSERA_RETURN_IF_ERROR(CudaOk(error));
  cudaGraphExec_t exec = nullptr;
  TESSERA_RETURN_IF_ERROR(CudaOk(cudaGraphInstantiate(&exec, graph, 0)));
  return exec;
}

absl::StatusOr<std::vector<float>> TrainStepByStep(Communicator& world) {
  TESSERA_ASSIGN_OR_RETURN(const auto training, Training::Create(world));
  for (int step = 0; step < kSteps; ++step) {
    TESSERA_RETURN_IF_ERROR(training->Step());
  }
  return training->Weights();
}

// The first step makes what is made on first use.
absl::StatusOr<std::vector<float>> TrainByGraph(Communicator& world) {
  TESSERA_ASSIGN_OR_RETURN(const auto training, Training::Create(world));
  TESSERA_RETURN_IF_ERROR(training->Step());
  TESSERA_ASSIGN_OR_RETURN(const cudaGraphExec_t graph, CaptureStep(*training));
  const absl::Cleanup destroy = [graph] { cudaGraphExecDestroy(graph); };
  const auto stream =
      static_cast<cudaStream_t>(training->compute().native_handle());
  for (int step = 1; step < kSteps; ++step) {
    TESSERA_RETURN_IF_ERROR(CudaOk(cudaGraphLaunch(graph, stream)));
  }
  TESSERA_RETURN_IF_ERROR(training->context().JoinStreams());
  return training->Weights();
}

}  // namespace

absl::Status CheckCapturedSteps(Communicator& world) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> wanted,
                           TrainStepByStep(world));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> found, TrainByGraph(world));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (found[i] == wanted[i]) continue;
    return absl::InternalError(absl::StrCat("weight ", i, " is ", found[i],
                                            " by the graph, want ", wanted[i]));
  }
  return absl::OkStatus();
}

}  // namespace tessera::testing
