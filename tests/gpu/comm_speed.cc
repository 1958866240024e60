#include "tests/gpu/comm_speed.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/nccl/nccl_world.h"

namespace tessera::testing {
namespace {

absl::Status ToStatus(ncclResult_t result) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::InternalError(ncclGetErrorString(result));
}

struct DestroyNccl {
  void operator()(ncclComm_t comm) const { ncclCommDestroy(comm); }
};
using BareComm = std::unique_ptr<ncclComm, DestroyNccl>;

// An ncclComm_t of its own for the ranks of `world`.
absl::StatusOr<BareComm> NewBareComm(CudaDevice& device, Communicator& world) {
  TESSERA_ASSIGN_OR_RETURN(const NcclId mine, NewNcclId());
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<std::string> ids,
      world.HostAllGather({mine.bytes.data(), mine.bytes.size()}));
  ncclUniqueId id;
  static_assert(sizeof(id) == sizeof(mine.bytes));
  std::memcpy(&id, ids[0].data(), sizeof(id));
  if (cudaSetDevice(device.ordinal()) != cudaSuccess) {
    return absl::InternalError(
        absl::StrCat("cannot use GPU ", device.ordinal()));
  }
  ncclComm_t comm = nullptr;
  TESSERA_RETURN_IF_ERROR(
      ToStatus(ncclCommInitRank(&comm, world.size(), id, world.rank())));
  return BareComm(comm);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A collective in both ways.
struct Contest {
  std::string name;
  double traffic;  // busbw times the time, for each byte
  std::function<absl::Status()> nccl;
  std::function<absl::Status()> tessera;
};

// The collectives on some memory.
class Contests {
 public:
  // Both views are flat f32 of one size, which is a multiple of the ranks.
  Contests(Communicator& world, ncclComm_t comm, const TensorView& send,
           const TensorView& recv)
      : world_(world),
        comm_(comm),
        stream_(static_cast<cudaStream_t>(world.stream().native_handle())),
        send_(send),
        recv_(recv),
        piece_(send.num_elements() / world.size()) {}

  std::vector<Contest> All() {
    const double others = static_cast<double>(world_.size() - 1) /
                          static_cast<double>(world_.size());
    return {{"all_reduce", 2 * others,
             [this] {
               return ToStatus(ncclAllReduce(send_.data(), recv_.data(),
                                             send_.num_elements(), ncclFloat,
                                             ncclSum, comm_, stream_));
             },
             [this] { return world_.AllReduce(ReduceOp::kSum, send_, recv_); }},
            {"reduce_scatter", others,
             [this] {
               return ToStatus(ncclReduceScatter(send_.data(), recv_.data(),
                                                 piece_, ncclFloat, ncclSum,
                                                 comm_, stream_));
             },
             [this] {
               return world_.ReduceScatter(ReduceOp::kSum, send_,
                                           recv_.Slice(0, {0, piece_}));
             }},
            {"all_gather", others,
             [this] {
               return ToStatus(ncclAllGather(send_.data(), recv_.data(), piece_,
                                             ncclFloat, comm_, stream_));
             },
             [this] {
               return world_.AllGather(send_.Slice(0, {0, piece_}), recv_);
             }},
            {"all_to_all", others, [this] { return BareAllToAll(); },
             [this] { return world_.AllToAll(send_, 0, {}, recv_, 0, {}); }}};
  }

 private:
  absl::Status BareAllToAll() {
    TESSERA_RETURN_IF_ERROR(ToStatus(ncclGroupStart()));
    absl::Status status;
    for (int peer = 0; peer < world_.size(); ++peer) {
      status.Update(ToStatus(ncclSend(send_.as<float>() + peer * piece_, piece_,
                                      ncclFloat, peer, comm_, stream_)));
      status.Update(ToStatus(ncclRecv(recv_.as<float>() + peer * piece_, piece_,
                                      ncclFloat, peer, comm_, stream_)));
    }
    status.Update(ToStatus(ncclGroupEnd()));
    return status;
  }

  Communicator& world_;
  const ncclComm_t comm_;
  const cudaStream_t stream_;
  const TensorView send_;
  const TensorView recv_;
  const int64_t piece_;  // elements
};

// Seconds that a call takes on the slowest rank.
absl::StatusOr<double> Seconds(Communicator& world, int calls,
                               absl::FunctionRef<absl::Status()> call) {
  TESSERA_RETURN_IF_ERROR(world.HostAllGather("begin").status());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) TESSERA_RETURN_IF_ERROR(call());
  TESSERA_RETURN_IF_ERROR(world.stream().Synchronize());
  const int64_t mine = (std::chrono::steady_clock::now() - start).count();
  TESSERA_ASSIGN_OR_RETURN(const auto all,
                           world.HostAllGather(absl::StrCat(mine)));
  int64_t slowest = 0;
  for (const std::string& text : all) {
    int64_t nanos = 0;
    if (!absl::SimpleAtoi(text, &nanos)) {
      return absl::InternalError(absl::StrCat("not a time: '", text, "'"));
    }
    slowest = std::max(slowest, nanos);
  }
  return static_cast<double>(slowest) * 1e-9 / calls;
}

absl::StatusOr<CommSpeed> Measure(Communicator& world, const Contest& contest,
                                  int64_t bytes,
                                  const CommSpeedOptions& options) {
  // Once each, to warm up.
  TESSERA_RETURN_IF_ERROR(Seconds(world, 1, contest.nccl).status());
  TESSERA_RETURN_IF_ERROR(Seconds(world, 1, contest.tessera).status());
  std::vector<double> nccl;
  std::vector<double> tessera;
  std::vector<double> ratios;
  for (int turn = 0; turn < options.turns; ++turn) {
    TESSERA_ASSIGN_OR_RETURN(const double bare,
                             Seconds(world, options.calls, contest.nccl));
    TESSERA_ASSIGN_OR_RETURN(const double ours,
                             Seconds(world, options.calls, contest.tessera));
    const double traffic = contest.traffic * static_cast<double>(bytes);
    nccl.push_back(traffic / bare);
    tessera.push_back(traffic / ours);
    ratios.push_back(bare / ours);
  }
  return CommSpeed{contest.name, bytes, Median(std::move(nccl)),
                   Median(std::move(tessera)), Median(std::move(ratios))};
}

}  // namespace

absl::StatusOr<std::vector<CommSpeed>> MeasureCommSpeed(
    CudaDevice& device, Communicator& world, const CommSpeedOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const BareComm comm, NewBareComm(device, world));
  std::vector<CommSpeed> speeds;
  for (const int64_t size : options.sizes) {
    const int64_t elements =
        size / SizeOf(DType::kF32) / world.size() * world.size();
    const int64_t bytes = elements * SizeOf(DType::kF32);
    TESSERA_ASSIGN_OR_RETURN(const Buffer send,
                             device.Allocate(bytes, "send", &world.stream()));
    TESSERA_ASSIGN_OR_RETURN(const Buffer recv,
                             device.Allocate(bytes, "recv", &world.stream()));
    const TensorView from =
        TensorView::Flat(send.data(), DType::kF32, elements);
    const TensorView to = TensorView::Flat(recv.data(), DType::kF32, elements);
    TESSERA_RETURN_IF_ERROR(device.kernels().Fill(world.stream(), from, 0.0));
    Contests contests(world, comm.get(), from, to);
    for (const Contest& contest : contests.All()) {
      TESSERA_ASSIGN_OR_RETURN(CommSpeed speed,
                               Measure(world, contest, bytes, options));
      speeds.push_back(std::move(speed));
    }
  }
  return speeds;
}

std::string ToTable(absl::Span<const CommSpeed> speeds) {
  std::string out = absl::StrFormat("%-16s %10s %12s %12s %7s\n", "busbw, GB/s",
                                    "KiB", "NCCL", "Tessera", "ratio");
  for (const CommSpeed& speed : speeds) {
    absl::StrAppendFormat(&out, "%-16s %10d %12.1f %12.1f %7.2f\n",
                          speed.collective, speed.bytes >> 10,
                          speed.nccl_busbw * 1e-9, speed.tessera_busbw * 1e-9,
                          speed.ratio);
  }
  return out;
}

}  // namespace tessera::testing
