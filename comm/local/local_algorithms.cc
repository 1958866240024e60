#include "tessera/comm/local/local_algorithms.h"

#include <algorithm>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tessera/device/cpu/elementwise.h"

namespace tessera::internal {
namespace {

int Size(Calls calls) { return static_cast<int>(calls.size()); }

using Views = absl::InlinedVector<TensorView, 32>;

// Up to so many bytes of each send are reduced at once: the result is in a
// cache when it is copied on.
constexpr int64_t kReducedAtOnce = 64 << 10;

void CopyWhereDifferent(const TensorView& dst, const TensorView& src,
                        bool past_caches) {
  // A peer may be reading memory that is sent in place: do not touch it.
  if (!IsSameMemory(dst, src)) CopyElements(dst, src, past_caches);
}

// The elements of an all-reduce as one dim to cut: of the flat tensor where
// everybody's memory is dense, else its longest.
class AllReduceDim {
 public:
  explicit AllReduceDim(Calls calls) {
    flat_ = std::all_of(calls.begin(), calls.end(), [](const Collective* c) {
      return c->send.IsContiguous() && c->recv.IsContiguous();
    });
    const TensorView& view = calls[0]->send;
    if (flat_) {
      extent_ = view.num_elements();
    } else {
      const absl::Span<const int64_t> extents = view.shape().extents();
      const auto longest = std::max_element(extents.begin(), extents.end());
      dim_ = static_cast<int>(longest - extents.begin());
      extent_ = *longest;
    }
  }

  int64_t extent() const { return extent_; }
  TensorView Slice(const TensorView& view, Interval range) const {
    return (flat_ ? view.Flattened() : view).Slice(dim_, range);
  }

 private:
  bool flat_;
  int dim_ = 0;
  int64_t extent_;
};

// Reduces this range of everybody's send into the recv of `rank` and from
// there into the others'. In place, what is overwritten has been read.
void AllReduceRange(Calls calls, const AllReduceDim& dim, Interval range,
                    int rank, bool past_caches) {
  Views sources;
  for (const Collective* call : calls) {
    sources.push_back(dim.Slice(call->send, range));
  }
  const TensorView result = dim.Slice(calls[rank]->recv, range);
  ReduceElements(calls[rank]->op, result, sources);
  for (int peer = 0; peer < Size(calls); ++peer) {
    if (peer == rank) continue;
    CopyElements(dim.Slice(calls[peer]->recv, range), result, past_caches);
  }
}

void AllReducePart(Calls calls, int rank) {
  const AllReduceDim dim(calls);
  const Interval part = CeilSplit(dim.extent(), Size(calls), rank);
  if (part.empty()) return;
  const int64_t bytes = calls[rank]->recv.num_bytes();
  const bool past_caches = OutgrowsCaches(bytes);
  const int64_t step =
      std::max<int64_t>(1, kReducedAtOnce / (bytes / dim.extent()));
  for (int64_t begin = part.begin; begin < part.end; begin += step) {
    AllReduceRange(calls, dim, {begin, std::min(begin + step, part.end)}, rank,
                   past_caches);
  }
}

void ReduceScatterPart(Calls calls, int rank) {
  Views sources;
  for (const Collective* call : calls) {
    sources.push_back(call->SendPiece(rank, Size(calls)));
  }
  ReduceElements(calls[rank]->op, calls[rank]->recv, sources);
}

void AllGatherPart(Calls calls, int rank) {
  const TensorView& recv = calls[rank]->recv;
  const bool past_caches = OutgrowsCaches(recv.num_bytes());
  for (int peer = 0; peer < Size(calls); ++peer) {
    CopyWhereDifferent(calls[rank]->RecvPiece(peer, Size(calls)),
                       calls[peer]->send, past_caches);
  }
}

void AllToAllPart(Calls calls, int rank) {
  const TensorView& recv = calls[rank]->recv;
  const bool past_caches = OutgrowsCaches(recv.num_bytes());
  for (int peer = 0; peer < Size(calls); ++peer) {
    CopyElements(calls[rank]->RecvPiece(peer, Size(calls)),
                 calls[peer]->SendPiece(rank, Size(calls)), past_caches);
  }
}

void BroadcastPart(Calls calls, int rank) {
  const TensorView& recv = calls[rank]->recv;
  CopyWhereDifferent(recv, calls[calls[rank]->root]->send,
                     OutgrowsCaches(recv.num_bytes()));
}

void SendRecvPart(Calls calls, int rank) {
  int64_t bytes = 0;
  for (const Transfer& recv : calls[rank]->recvs) {
    bytes += recv.view.num_bytes();
  }
  for (int peer = 0; peer < Size(calls); ++peer) {
    MessagesWith recvs(peer, calls[rank]->recvs);
    MessagesWith sends(rank, calls[peer]->sends);
    while (const Transfer* recv = recvs.Next()) {
      CopyElements(recv->view, sends.Next()->view, OutgrowsCaches(bytes));
    }
  }
}

}  // namespace

void RunPart(Calls calls, int rank) {
  switch (calls[rank]->kind) {
    case CollectiveKind::kAllReduce:
      return AllReducePart(calls, rank);
    case CollectiveKind::kReduceScatter:
      return ReduceScatterPart(calls, rank);
    case CollectiveKind::kAllGather:
      return AllGatherPart(calls, rank);
    case CollectiveKind::kAllToAll:
      return AllToAllPart(calls, rank);
    case CollectiveKind::kBroadcast:
      return BroadcastPart(calls, rank);
    case CollectiveKind::kSendRecv:
      return SendRecvPart(calls, rank);
    case CollectiveKind::kBarrier:
      return;
  }
}

void RunAlone(Calls calls) {
  if (calls[0]->kind == CollectiveKind::kAllReduce) {
    const AllReduceDim dim(calls);
    return AllReduceRange(calls, dim, {0, dim.extent()}, /*rank=*/0,
                          /*past_caches=*/false);
  }
  for (int rank = 0; rank < Size(calls); ++rank) RunPart(calls, rank);
}

int64_t TotalBytes(Calls calls) {
  int64_t bytes = 0;
  for (const Collective* call : calls) {
    bytes += call->send.num_bytes() + call->recv.num_bytes();
    for (const Transfer& t : call->sends) bytes += t.view.num_bytes();
    for (const Transfer& t : call->recvs) bytes += t.view.num_bytes();
  }
  return bytes;
}

}  // namespace tessera::internal
