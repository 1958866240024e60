#ifndef TESSERA_COMM_NCCL_NCCL_LAUNCH_H_
#define TESSERA_COMM_NCCL_NCCL_LAUNCH_H_

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"
#include "tessera/device/memory.h"
#include "tessera/device/stream.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera::internal {

// One rank's part of calls that are made at once, as what NCCL knows: calls on
// dense memory, with copies before and afterwards.
//
// 1. Ranks that agree on their calls make the same calls of NCCL in the same
//    order: what is left out as empty, or not ragged, is so on all of them.
// 2. What is not dense goes through memory of the device tagged "nccl staging",
//    which is given back in the order of the stream, whatever fails.
//
// LIFETIME: borrows the stream.
class NcclLaunch {
 public:
  NcclLaunch(Stream& stream, int rank, int group_size)
      : stream_(stream), rank_(rank), size_(group_size) {}
  ~NcclLaunch();
  NcclLaunch(const NcclLaunch&) = delete;
  NcclLaunch& operator=(const NcclLaunch&) = delete;

  // Enqueues nothing yet. ERRORS: ResourceExhausted.
  absl::Status Add(const Collective& call);

  // The three steps, in this order. ERRORS of the copies: those of the stream.
  absl::Status CopyBefore();
  bool empty() const { return calls_.empty(); }
  ncclResult_t Call(ncclComm_t comm) const;
  absl::Status CopyAfter();

  // The memory that NCCL is given.
  std::vector<MemoryRange> Memory() const;

 private:
  enum class Function {
    kAllReduce,
    kReduceScatter,
    kReduce,
    kAllGather,
    kBroadcast,
    kSend,
    kRecv
  };
  // One call of NCCL. `send` or `recv` has no memory where it has none.
  struct NcclCall {
    Function function;
    TensorView send;
    TensorView recv;
    int64_t count;                 // of elements, as NCCL counts
    ReduceOp op = ReduceOp::kSum;  // of reductions
    int peer = 0;                  // or root
  };
  struct Copy {
    TensorView dst;
    TensorView src;
  };
  struct Scaling {
    TensorView view;
    double factor;
  };

  absl::Status AddAllReduce(const Collective& call);
  absl::Status AddReduceScatter(const Collective& call);
  absl::Status AddAllGather(const Collective& call);
  absl::Status AddAllToAll(const Collective& call);
  absl::Status AddBroadcast(const Collective& call);
  absl::Status AddSendRecv(const Collective& call);
  absl::Status AddBarrier();
  absl::Status AddSend(int peer, const TensorView& view);
  absl::Status AddRecv(int peer, const TensorView& view);
  void Average(ReduceOp op, const TensorView& flat);

  // Dense memory of the same elements: that of `view`, or staging, to which
  // DenseSend copies before, and from which DenseRecv copies afterwards.
  absl::StatusOr<TensorView> DenseSend(const TensorView& view);
  absl::StatusOr<TensorView> DenseRecv(const TensorView& view);
  // Staging for each of `pieces`, one behind the other.
  absl::StatusOr<std::vector<TensorView>> Stage(
      absl::Span<const TensorView> pieces);

  Stream& stream_;
  const int rank_;
  const int size_;
  std::vector<Buffer> staging_;
  std::vector<Copy> before_;
  std::vector<NcclCall> calls_;
  std::vector<Scaling> scalings_;
  std::vector<Copy> after_;
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_NCCL_NCCL_LAUNCH_H_
