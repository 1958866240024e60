#ifndef TESSERA_COMM_COLLECTIVE_H_
#define TESSERA_COMM_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/tensor/index.h"
#include "tessera/tensor/reduce_op.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kSendRecv,
  kBarrier,
};

// "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
// "send_recv", "barrier".
absl::string_view CollectiveKindName(CollectiveKind kind);

// True if both views mean the same elements in memory: copying one to the other
// would do nothing.
bool IsSameMemory(const TensorView& a, const TensorView& b);

// One side of a point-to-point message.
struct Transfer {
  int peer = 0;  // index in the group
  TensorView view;
};

// Visits the messages of `transfers` with one peer, in order.
class MessagesWith {
 public:
  MessagesWith(int peer, absl::Span<const Transfer> transfers)
      : peer_(peer), transfers_(transfers) {}

  // The next one, or null behind the last.
  const Transfer* Next();

 private:
  const int peer_;
  const absl::Span<const Transfer> transfers_;
  size_t next_ = 0;
};

// What one rank asks of a group: the arguments of one call, checked by
// Communicator before a backend sees them. Which fields count depends on
// `kind`; see Communicator for their meaning. LIFETIME: borrows the transfers.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;  // all_reduce, reduce_scatter
  TensorView send;
  TensorView recv;
  int send_dim = 0;  // reduce_scatter, all_to_all: the dim that is cut
  ExtentSplit send_split;
  int recv_dim = 0;  // all_gather, all_to_all: the dim that is joined
  ExtentSplit recv_split;
  int root = 0;                      // broadcast
  absl::Span<const Transfer> sends;  // send_recv
  absl::Span<const Transfer> recvs;

  // The part of `send` for group rank i (reduce_scatter, all_to_all), and the
  // part of `recv` that comes from it (all_gather, all_to_all).
  TensorView SendPiece(int i, int group_size) const;
  TensorView RecvPiece(int i, int group_size) const;

  // What all ranks of a group must agree on, in words:
  // "all_reduce sum f32[12]", "all_gather f32[5,3] dim 0 split ceil".
  // Point-to-point calls differ by nature: "send_recv".
  std::string Signature() const;

  // Signature() == other.Signature(), without making the texts.
  bool Matches(const Collective& other) const;

  // Bytes that group rank `rank` receives from others, by the direct
  // algorithm; an all-reduce counts as a reduce-scatter and an all-gather of
  // CeilSplit pieces.
  int64_t BytesReceived(int rank, int group_size) const;
};

}  // namespace tessera

#endif  // TESSERA_COMM_COLLECTIVE_H_
