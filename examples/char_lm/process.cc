#include "char_lm/process.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/device/cuda/cuda_device.h"

namespace char_lm {
namespace {

using tessera::CudaDevice;
using tessera::MpiWorld;
using tessera::NcclWorld;

// Runs the program on a new stream of the device.
template <typename World>
absl::Status RunOn(tessera::Device& device, World& world, RankProgram program) {
  TESSERA_ASSIGN_OR_RETURN(const auto compute, device.NewStream("compute"));
  TESSERA_ASSIGN_OR_RETURN(const auto comm, world.Join(*compute));
  tessera::CommSet comms(*comm);
  return program(world.rank(), comms, *compute);
}

class MpiProcess : public Process {
 public:
  MpiProcess(const Options& options, MpiWorld world)
      : device_options_(CpuOptions(options)), world_(std::move(world)) {}

  int rank() const override { return world_.rank(); }
  int num_ranks() const override { return world_.num_ranks(); }
  absl::Status Run(RankProgram program) override {
    tessera::CpuDevice device(device_options_);
    return RunOn(device, world_, program);
  }
  absl::Status Finish() override { return tessera::FinishMpi(); }

 private:
  const tessera::CpuDevice::Options device_options_;
  MpiWorld world_;
};

class NcclProcess : public Process {
 public:
  NcclProcess(std::unique_ptr<CudaDevice> device, NcclWorld world)
      : device_(std::move(device)), world_(std::move(world)) {}

  int rank() const override { return world_.rank(); }
  int num_ranks() const override { return world_.num_ranks(); }
  absl::Status Run(RankProgram program) override {
    device_->ResetMemoryPeaks();
    return RunOn(
        *device_, world_,
        [&](int rank, tessera::CommSet& comms, tessera::Stream& compute) {
          const absl::Status status = program(rank, comms, compute);
          // Else its end would wait for the other ranks.
          if (!status.ok()) comms.world().Abort(status);
          return status;
        });
  }

 private:
  const std::unique_ptr<CudaDevice> device_;  // outlives the world
  NcclWorld world_;
};

absl::StatusOr<std::shared_ptr<Process>> JoinMpi(const Options& options) {
  TESSERA_RETURN_IF_ERROR(tessera::StartMpi());
  TESSERA_ASSIGN_OR_RETURN(MpiWorld world, MpiWorld::Create());
  return std::make_shared<MpiProcess>(options, std::move(world));
}

// The number of this process's GPU.
absl::StatusOr<int> LocalRank() {
  const char* const text = std::getenv("LOCAL_RANK");
  int rank = 0;
  if (text != nullptr && absl::SimpleAtoi(text, &rank)) return rank;
  return absl::InvalidArgumentError(absl::StrCat(
      "RANK is set: want the number of a GPU in LOCAL_RANK, too, found ",
      text == nullptr ? "none" : absl::StrCat("'", text, "'")));
}

absl::StatusOr<std::shared_ptr<Process>> JoinNccl() {
  TESSERA_RETURN_IF_ERROR(tessera::CudaDeviceCount().status());
  if (std::getenv("RANK") == nullptr) return nullptr;
  TESSERA_ASSIGN_OR_RETURN(const int gpu, LocalRank());
  TESSERA_ASSIGN_OR_RETURN(auto device, CudaDevice::Create(gpu));
  TESSERA_ASSIGN_OR_RETURN(
      NcclWorld world,
      NcclWorld::CreateFromEnvironment(*device, {.timeout = kNcclTimeout}));
  return std::make_shared<NcclProcess>(std::move(device), std::move(world));
}

}  // namespace

tessera::CpuDevice::Options CpuOptions(const Options& options) {
  return {.streams = options.streams, .trace = !options.trace_path.empty()};
}

absl::StatusOr<std::shared_ptr<Process>> Process::Join(const Options& options) {
  switch (options.backend) {
    case Backend::kLocal:
      return nullptr;
    case Backend::kMpi:
      return JoinMpi(options);
    case Backend::kNccl:
      return JoinNccl();
  }
  return absl::InvalidArgumentError("char_lm: a backend without a name");
}

}  // namespace char_lm
