#include "tessera/comm/mpi/mpi_algorithms.h"

#include <algorithm>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/elementwise.h"

namespace tessera::internal {
namespace {

using Views = absl::InlinedVector<TensorView, 32>;

// Up to so many bytes of each rank's piece are reduced at once, which bounds
// the memory that they are received into.
constexpr int64_t kReducedAtOnce = 1 << 20;

// What is exchanged in one round: a rank sends up to so many bytes altogether.
// A second round would take longer.
constexpr int64_t kSentAtOnce = 256 << 10;

void CopyWhereDifferent(const TensorView& dst, const TensorView& src) {
  if (!IsSameMemory(dst, src)) CopyElements(dst, src);
}

void Add(int peer, const TensorView& flat, Messages& messages) {
  if (flat.num_elements() == 0) return;
  messages.push_back({peer, flat.data(), flat.num_bytes()});
}

// Stands for a view where bytes lie dense: the view itself, or other memory.
class Dense {
 public:
  // The elements of `view` are there.
  static Dense Of(const TensorView& view, OperationMemory& memory) {
    Dense dense(view, memory);
    if (dense.copy_ != nullptr) CopyElements(dense.Shaped(), view);
    return dense;
  }
  // What they become is written to flat(), then to the view by Store.
  static Dense For(const TensorView& view, OperationMemory& memory) {
    return Dense(view, memory);
  }

  const TensorView& flat() const { return flat_; }
  void Store() const {
    if (copy_ != nullptr) CopyElements(view_, Shaped());
  }

 private:
  Dense(const TensorView& view, OperationMemory& memory) : view_(view) {
    if (view.IsContiguous()) {
      flat_ = view.shape().num_dims() == 1 ? view : view.Flattened();
      return;
    }
    copy_ = memory.copies
                .emplace_back(
                    std::make_unique_for_overwrite<char[]>(view.num_bytes()))
                .get();
    flat_ = TensorView::Flat(copy_, view.dtype(), view.num_elements());
  }
  TensorView Shaped() const { return TensorView(copy_, view_.meta()); }

  TensorView view_;
  TensorView flat_;
  char* copy_ = nullptr;  // where view_ is not dense
};

using DenseViews = absl::InlinedVector<Dense, 8>;

// One rank's view of one operation.
class Part {
 public:
  Part(int rank, int size, MoveMessages move, OperationMemory& memory)
      : rank_(rank), size_(size), move_(move), memory_(memory) {}

  absl::Status AllReduce(const Collective& call) const;
  absl::Status AllReduceShort(const Collective& call) const;
  absl::Status ReduceScatter(const Collective& call) const;
  absl::Status AllGather(const Collective& call) const;
  absl::Status AllToAll(const Collective& call) const;
  absl::Status Broadcast(const Collective& call) const;
  absl::Status BroadcastShort(const Collective& call) const;
  absl::Status SendRecv(const Collective& call) const;

 private:
  // Piece i of a flat view that is cut evenly.
  TensorView EvenPiece(const TensorView& flat, int i) const {
    return flat.Slice(0, CeilSplit(flat.num_elements(), size_, i));
  }

  // Whether a rank sends all of it to every other one.
  bool IsShort(const TensorView& view) const {
    return view.num_bytes() <= kSentAtOnce / (size_ - 1);
  }

  // result = op over the ranks' pieces for this rank. pieces[i] goes to rank i.
  // All are flat; `result` may be pieces[rank].
  absl::Status Reduce(ReduceOp op, absl::Span<const TensorView> pieces,
                      const TensorView& result) const;

  // pieces[i] = what rank i has there already, for all of `from`.
  absl::Status Gather(absl::Span<const TensorView> pieces) const;

  const int rank_;
  const int size_;
  const MoveMessages move_;
  OperationMemory& memory_;
};

absl::Status Part::Reduce(ReduceOp op, absl::Span<const TensorView> pieces,
                          const TensorView& result) const {
  int64_t longest = 0;
  for (const TensorView& piece : pieces) {
    longest = std::max(longest, piece.num_elements());
  }
  const int64_t step = kReducedAtOnce / SizeOf(result.dtype());
  const auto part = [&](const TensorView& flat, int64_t begin) {
    const int64_t end = flat.num_elements();
    return flat.Slice(0, {std::min(begin, end), std::min(begin + step, end)});
  };
  // Received into slots that are aligned for every dtype.
  const int64_t slot = (part(result, 0).num_bytes() + 63) / 64 * 64;
  std::vector<char>& scratch = memory_.scratch;
  scratch.resize(std::max<size_t>(scratch.size(), slot * size_));
  for (int64_t begin = 0; begin < longest; begin += step) {
    const TensorView own = part(pieces[rank_], begin);
    Messages sends;
    Messages recvs;
    Views sources;
    for (int peer = 0; peer < size_; ++peer) {
      sources.push_back(
          peer == rank_ ? own
                        : TensorView(scratch.data() + peer * slot, own.meta()));
      if (peer == rank_) continue;
      Add(peer, part(pieces[peer], begin), sends);
      Add(peer, sources.back(), recvs);
    }
    TESSERA_RETURN_IF_ERROR(move_(sends, recvs));
    ReduceElements(op, part(result, begin), sources);
  }
  return absl::OkStatus();
}

absl::Status Part::Gather(absl::Span<const TensorView> pieces) const {
  Messages sends;
  Messages recvs;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    Add(peer, pieces[rank_], sends);
    Add(peer, pieces[peer], recvs);
  }
  return move_(sends, recvs);
}

// What is short goes from all to all at once.
absl::Status Part::AllReduceShort(const Collective& call) const {
  const Dense send = Dense::Of(call.send, memory_);
  const Dense recv = Dense::For(call.recv, memory_);
  Views same;
  for (int i = 0; i < size_; ++i) same.push_back(send.flat());
  TESSERA_RETURN_IF_ERROR(Reduce(call.op, same, recv.flat()));
  recv.Store();
  return absl::OkStatus();
}

absl::Status Part::AllReduce(const Collective& call) const {
  if (IsShort(call.send)) return AllReduceShort(call);
  const Dense send = Dense::Of(call.send, memory_);
  const Dense recv = Dense::For(call.recv, memory_);
  Views pieces;
  Views results;
  for (int i = 0; i < size_; ++i) {
    pieces.push_back(EvenPiece(send.flat(), i));
    results.push_back(EvenPiece(recv.flat(), i));
  }
  TESSERA_RETURN_IF_ERROR(Reduce(call.op, pieces, results[rank_]));
  TESSERA_RETURN_IF_ERROR(Gather(results));
  recv.Store();
  return absl::OkStatus();
}

absl::Status Part::ReduceScatter(const Collective& call) const {
  DenseViews dense;
  Views pieces;
  for (int i = 0; i < size_; ++i) {
    dense.push_back(Dense::Of(call.SendPiece(i, size_), memory_));
    pieces.push_back(dense.back().flat());
  }
  const Dense recv = Dense::For(call.recv, memory_);
  TESSERA_RETURN_IF_ERROR(Reduce(call.op, pieces, recv.flat()));
  recv.Store();
  return absl::OkStatus();
}

absl::Status Part::AllGather(const Collective& call) const {
  DenseViews dense;
  Views pieces;
  for (int i = 0; i < size_; ++i) {
    dense.push_back(i == rank_ ? Dense::Of(call.send, memory_)
                               : Dense::For(call.RecvPiece(i, size_), memory_));
    pieces.push_back(dense.back().flat());
  }
  CopyWhereDifferent(call.RecvPiece(rank_, size_), call.send);
  TESSERA_RETURN_IF_ERROR(Gather(pieces));
  for (int i = 0; i < size_; ++i) {
    if (i != rank_) dense[i].Store();
  }
  return absl::OkStatus();
}

absl::Status Part::AllToAll(const Collective& call) const {
  DenseViews sent;
  DenseViews received;
  Messages sends;
  Messages recvs;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    sent.push_back(Dense::Of(call.SendPiece(peer, size_), memory_));
    received.push_back(Dense::For(call.RecvPiece(peer, size_), memory_));
    Add(peer, sent.back().flat(), sends);
    Add(peer, received.back().flat(), recvs);
  }
  TESSERA_RETURN_IF_ERROR(move_(sends, recvs));
  CopyElements(call.RecvPiece(rank_, size_), call.SendPiece(rank_, size_));
  for (const Dense& dense : received) dense.Store();
  return absl::OkStatus();
}

// What is short, the root gives to all as a whole.
absl::Status Part::BroadcastShort(const Collective& call) const {
  const bool is_root = rank_ == call.root;
  const Dense buffer =
      is_root ? Dense::Of(call.send, memory_) : Dense::For(call.recv, memory_);
  Messages sends;
  Messages recvs;
  for (int peer = 0; peer < size_; ++peer) {
    if (is_root && peer != rank_) Add(peer, buffer.flat(), sends);
  }
  if (!is_root) Add(call.root, buffer.flat(), recvs);
  TESSERA_RETURN_IF_ERROR(move_(sends, recvs));
  if (!is_root) buffer.Store();
  return absl::OkStatus();
}

// The root gives every rank its piece and that of the root; the others give
// theirs to each other.
absl::Status Part::Broadcast(const Collective& call) const {
  if (size_ == 2 || IsShort(call.recv)) return BroadcastShort(call);
  const bool is_root = rank_ == call.root;
  const Dense buffer =
      is_root ? Dense::Of(call.send, memory_) : Dense::For(call.recv, memory_);
  const TensorView roots_piece = EvenPiece(buffer.flat(), call.root);
  Messages sends;
  Messages recvs;
  for (int peer = 0; peer < size_; ++peer) {
    if (!is_root || peer == rank_) continue;
    Add(peer, EvenPiece(buffer.flat(), peer), sends);
    Add(peer, roots_piece, sends);
  }
  if (is_root) return move_(sends, recvs);

  Add(call.root, EvenPiece(buffer.flat(), rank_), recvs);
  Add(call.root, roots_piece, recvs);
  TESSERA_RETURN_IF_ERROR(move_(sends, recvs));
  recvs.clear();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || peer == call.root) continue;
    Add(peer, EvenPiece(buffer.flat(), rank_), sends);
    Add(peer, EvenPiece(buffer.flat(), peer), recvs);
  }
  TESSERA_RETURN_IF_ERROR(move_(sends, recvs));
  buffer.Store();
  return absl::OkStatus();
}

absl::Status Part::SendRecv(const Collective& call) const {
  DenseViews sent;
  DenseViews received;
  Messages sends;
  Messages recvs;
  for (const Transfer& t : call.sends) {
    if (t.peer == rank_) continue;
    sent.push_back(Dense::Of(t.view, memory_));
    Add(t.peer, sent.back().flat(), sends);
  }
  for (const Transfer& t : call.recvs) {
    if (t.peer == rank_) continue;
    received.push_back(Dense::For(t.view, memory_));
    Add(t.peer, received.back().flat(), recvs);
  }
  MessagesWith to_self(rank_, call.sends);
  MessagesWith from_self(rank_, call.recvs);
  while (const Transfer* const recv = from_self.Next()) {
    CopyElements(recv->view, to_self.Next()->view);
  }
  TESSERA_RETURN_IF_ERROR(move_(sends, recvs));
  for (const Dense& dense : received) dense.Store();
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCall(const Collective& call, int rank, int group_size,
                     MoveMessages move, OperationMemory& memory) {
  const Part part(rank, group_size, move, memory);
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return part.AllReduce(call);
    case CollectiveKind::kReduceScatter:
      return part.ReduceScatter(call);
    case CollectiveKind::kAllGather:
      return part.AllGather(call);
    case CollectiveKind::kAllToAll:
      return part.AllToAll(call);
    case CollectiveKind::kBroadcast:
      return part.Broadcast(call);
    case CollectiveKind::kSendRecv:
      return part.SendRecv(call);
    case CollectiveKind::kBarrier:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace tessera::internal
