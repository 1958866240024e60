#include "tessera/comm/collective.h"

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

bool IsReduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduceScatter;
}

TensorView Piece(const TensorView& view, int dim, const ExtentSplit& split,
                 int index, int parts) {
  const int64_t extent = view.shape().extent(dim);
  return view.Slice(dim, split.Piece(extent, parts, index));
}

}  // namespace

absl::string_view CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kSendRecv:
      return "send_recv";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "";
}

bool IsSameMemory(const TensorView& a, const TensorView& b) {
  if (a.meta() != b.meta()) return false;
  if (a.num_elements() == 0) return true;
  if (a.data() != b.data()) return false;
  for (int dim = 0; dim < a.shape().num_dims(); ++dim) {
    // Nothing steps along an extent of 1, so its stride does not matter.
    if (a.shape().extent(dim) > 1 && a.strides()[dim] != b.strides()[dim]) {
      return false;
    }
  }
  return true;
}

const Transfer* MessagesWith::Next() {
  while (next_ < transfers_.size()) {
    const Transfer& t = transfers_[next_++];
    if (t.peer == peer_) return &t;
  }
  return nullptr;
}

TensorView Collective::SendPiece(int i, int group_size) const {
  return Piece(send, send_dim, send_split, i, group_size);
}

TensorView Collective::RecvPiece(int i, int group_size) const {
  return Piece(recv, recv_dim, recv_split, i, group_size);
}

std::string Collective::Signature() const {
  std::string text(CollectiveKindName(kind));
  if (IsReduction(kind)) absl::StrAppend(&text, " ", ReduceOpName(op));
  switch (kind) {
    case CollectiveKind::kAllReduce:
      absl::StrAppend(&text, " ", send.meta().ToString());
      break;
    case CollectiveKind::kReduceScatter:
      absl::StrAppend(&text, " ", send.meta().ToString(), " dim ", send_dim,
                      " split ", send_split.ToString());
      break;
    case CollectiveKind::kAllGather:
      absl::StrAppend(&text, " ", recv.meta().ToString(), " dim ", recv_dim,
                      " split ", recv_split.ToString());
      break;
    case CollectiveKind::kAllToAll:
      absl::StrAppend(&text, " ", DTypeName(send.dtype()));
      break;
    case CollectiveKind::kBroadcast:
      absl::StrAppend(&text, " ", recv.meta().ToString(), " root ", root);
      break;
    case CollectiveKind::kSendRecv:
    case CollectiveKind::kBarrier:
      break;
  }
  return text;
}

bool Collective::Matches(const Collective& other) const {
  if (kind != other.kind) return false;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return op == other.op && send.meta() == other.send.meta();
    case CollectiveKind::kReduceScatter:
      return op == other.op && send.meta() == other.send.meta() &&
             send_dim == other.send_dim && send_split == other.send_split;
    case CollectiveKind::kAllGather:
      return recv.meta() == other.recv.meta() && recv_dim == other.recv_dim &&
             recv_split == other.recv_split;
    case CollectiveKind::kAllToAll:
      return send.dtype() == other.send.dtype();
    case CollectiveKind::kBroadcast:
      return recv.meta() == other.recv.meta() && root == other.root;
    case CollectiveKind::kSendRecv:
    case CollectiveKind::kBarrier:
      return true;
  }
  return false;
}

int64_t Collective::BytesReceived(int rank, int group_size) const {
  switch (kind) {
    case CollectiveKind::kAllReduce: {
      const int64_t own =
          CeilSplit(recv.num_elements(), group_size, rank).size() *
          SizeOf(recv.dtype());
      return own * (group_size - 1) + (recv.num_bytes() - own);
    }
    case CollectiveKind::kReduceScatter:
      return recv.num_bytes() * (group_size - 1);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return recv.num_bytes() - RecvPiece(rank, group_size).num_bytes();
    case CollectiveKind::kBroadcast:
      return rank == root ? 0 : recv.num_bytes();
    case CollectiveKind::kSendRecv: {
      int64_t bytes = 0;
      for (const Transfer& t : recvs) {
        if (t.peer != rank) bytes += t.view.num_bytes();
      }
      return bytes;
    }
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace tessera
