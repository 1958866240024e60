#include "tessera/comm/nccl/nccl_window.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/nccl/nccl_comm.h"
#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/device/cuda/cuda_status.h"

namespace tessera {
namespace {

using internal::NcclComm;
using internal::NcclCommunicator;

absl::StatusOr<NcclCommunicator*> NcclOf(Communicator& group) {
  auto* const nccl = dynamic_cast<NcclCommunicator*>(&group);
  if (nccl != nullptr) return nccl;
  return absl::InvalidArgumentError(
      absl::StrCat("comm: a window wants a communicator of NCCL, found '",
                   group.name(), "', which is none"));
}

class RealNcclWindow final : public NcclWindow {
 public:
  RealNcclWindow(int ordinal, int64_t bytes)
      : ordinal_(ordinal), bytes_(bytes) {}
  ~RealNcclWindow() override;

  // False where there is none.
  bool Allocate();

  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  absl::Status Register(Communicator& group) override;

 private:
  const int ordinal_;
  const int64_t bytes_;
  void* data_ = nullptr;
  std::vector<std::weak_ptr<NcclComm>> comms_;
};

RealNcclWindow::~RealNcclWindow() {
  for (const std::weak_ptr<NcclComm>& weak : comms_) {
    if (const auto comm = weak.lock()) comm->DeregisterWindow(data_);
  }
  const internal::CurrentDevice current(ordinal_);
  if (data_ != nullptr) ncclMemFree(data_);
}

bool RealNcclWindow::Allocate() {
  const internal::CurrentDevice current(ordinal_);
  if (current.status().ok() && ncclMemAlloc(&data_, bytes_) == ncclSuccess) {
    return true;
  }
  data_ = nullptr;
  cudaGetLastError();  // is told by the false, and by nothing else
  return false;
}

absl::Status RealNcclWindow::Register(Communicator& group) {
  TESSERA_ASSIGN_OR_RETURN(NcclCommunicator* const nccl, NcclOf(group));
  if (nccl->ordinal() != ordinal_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: a window of cuda:", ordinal_, " wants a group on that, found '",
        group.name(), "' on cuda:", nccl->ordinal()));
  }
  const std::shared_ptr<NcclComm>& comm = nccl->comm();
  if (comm == nullptr) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(comm->RegisterWindow(data_, bytes_));
  comms_.push_back(comm);
  return absl::OkStatus();
}

// What ranks have told: their bytes, or nothing where they have no memory.
absl::Status CheckAll(const Communicator& group,
                      const std::vector<std::string>& told) {
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i].empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("comm: no memory for a window of '", group.name(),
                       "' on rank ", group.members()[i]));
    }
  }
  for (const std::string& bytes : told) {
    if (bytes == told[0]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("comm: a window of '", group.name(),
                     "' wants the same bytes on all ranks, found ",
                     absl::StrJoin(told, ",")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclWindow>> NcclWindow::Create(
    Communicator& group, int64_t bytes) {
  if (bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: a window of '", group.name(),
                     "' wants at least 1 byte, found ", bytes));
  }
  TESSERA_ASSIGN_OR_RETURN(NcclCommunicator* const nccl, NcclOf(group));
  auto window = std::make_unique<RealNcclWindow>(nccl->ordinal(), bytes);
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<std::string> told,
      group.HostAllGather(window->Allocate() ? absl::StrCat(bytes) : ""));
  TESSERA_RETURN_IF_ERROR(CheckAll(group, told));
  TESSERA_RETURN_IF_ERROR(window->Register(group));
  return window;
}

}  // namespace tessera
