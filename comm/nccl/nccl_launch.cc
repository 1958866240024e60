#include "tessera/comm/nccl/nccl_launch.h"

#include <algorithm>

#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera::internal {
namespace {

ncclDataType_t NcclType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
  }
  return ncclFloat32;
}

ncclRedOp_t NcclOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:  // is scaled afterwards
      return ncclSum;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  return ncclSum;
}

bool HasSameSizes(absl::Span<const TensorView> pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [&](const TensorView& p) {
    return p.num_elements() == pieces[0].num_elements();
  });
}

// Whether NCCL may have the pieces where they lie: each is dense, and where
// they have the same sizes, they lie one behind the other.
bool AreDense(absl::Span<const TensorView> pieces) {
  const bool in_one = HasSameSizes(pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].IsContiguous()) return false;
    if (!in_one || i == 0) continue;
    const TensorView& last = pieces[i - 1];
    if (pieces[i].data() != last.as<char>() + last.num_bytes()) return false;
  }
  return true;
}

std::vector<TensorView> Flattened(absl::Span<const TensorView> dense) {
  std::vector<TensorView> flat;
  for (const TensorView& view : dense) flat.push_back(view.Flattened());
  return flat;
}

}  // namespace

NcclLaunch::~NcclLaunch() {
  for (Buffer& buffer : staging_) buffer.ResetAfter(stream_);
}

absl::Status NcclLaunch::Add(const Collective& call) {
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return AddAllReduce(call);
    case CollectiveKind::kReduceScatter:
      return AddReduceScatter(call);
    case CollectiveKind::kAllGather:
      return AddAllGather(call);
    case CollectiveKind::kAllToAll:
      return AddAllToAll(call);
    case CollectiveKind::kBroadcast:
      return AddBroadcast(call);
    case CollectiveKind::kSendRecv:
      return AddSendRecv(call);
    case CollectiveKind::kBarrier:
      return AddBarrier();
  }
  return absl::OkStatus();
}

// Staging.

absl::StatusOr<std::vector<TensorView>> NcclLaunch::Stage(
    absl::Span<const TensorView> pieces) {
  int64_t bytes = 0;
  for (const TensorView& piece : pieces) bytes += piece.num_bytes();
  TESSERA_ASSIGN_OR_RETURN(Buffer buffer, stream_.device().Allocate(
                                              bytes, "nccl staging", &stream_));
  std::vector<TensorView> staged;
  char* next = static_cast<char*>(buffer.data());
  for (const TensorView& piece : pieces) {
    staged.emplace_back(next, piece.meta());
    next += piece.num_bytes();
  }
  staging_.push_back(std::move(buffer));
  return staged;
}

absl::StatusOr<TensorView> NcclLaunch::DenseSend(const TensorView& view) {
  if (view.IsContiguous()) return view.Flattened();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<TensorView> staged,
                           Stage({&view, 1}));
  before_.push_back({staged[0], view});
  return staged[0].Flattened();
}

absl::StatusOr<TensorView> NcclLaunch::DenseRecv(const TensorView& view) {
  if (view.IsContiguous()) return view.Flattened();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<TensorView> staged,
                           Stage({&view, 1}));
  after_.push_back({view, staged[0]});
  return staged[0].Flattened();
}

void NcclLaunch::Average(ReduceOp op, const TensorView& flat) {
  if (op != ReduceOp::kAvg || flat.num_elements() == 0) return;
  scalings_.push_back({flat, 1.0 / size_});
}

// Collectives.

absl::Status NcclLaunch::AddAllReduce(const Collective& call) {
  const int64_t count = call.send.num_elements();
  if (count == 0) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const TensorView send, DenseSend(call.send));
  TESSERA_ASSIGN_OR_RETURN(const TensorView recv, DenseRecv(call.recv));
  calls_.push_back({Function::kAllReduce, send, recv, count, call.op});
  Average(call.op, recv);
  return absl::OkStatus();
}

absl::Status NcclLaunch::AddReduceScatter(const Collective& call) {
  std::vector<TensorView> pieces;
  for (int i = 0; i < size_; ++i) pieces.push_back(call.SendPiece(i, size_));
  const bool is_even = HasSameSizes(pieces);
  std::vector<TensorView> sends = pieces;
  if (!AreDense(pieces)) {
    TESSERA_ASSIGN_OR_RETURN(sends, Stage(pieces));
    for (int i = 0; i < size_; ++i) before_.push_back({sends[i], pieces[i]});
  }
  sends = Flattened(sends);
  TESSERA_ASSIGN_OR_RETURN(const TensorView recv, DenseRecv(call.recv));
  for (int i = 0; i < (is_even ? 1 : size_); ++i) {
    const int64_t count = sends[i].num_elements();
    if (count == 0) continue;
    if (is_even) {
      calls_.push_back(
          {Function::kReduceScatter, sends[0], recv, count, call.op});
    } else {
      calls_.push_back({Function::kReduce, sends[i],
                        i == rank_ ? recv : TensorView(), count, call.op, i});
    }
  }
  Average(call.op, recv);
  return absl::OkStatus();
}

absl::Status NcclLaunch::AddAllGather(const Collective& call) {
  std::vector<TensorView> pieces;
  for (int i = 0; i < size_; ++i) pieces.push_back(call.RecvPiece(i, size_));
  const bool is_even = HasSameSizes(pieces);
  std::vector<TensorView> recvs = pieces;
  if (!AreDense(pieces)) {
    TESSERA_ASSIGN_OR_RETURN(recvs, Stage(pieces));
    for (int i = 0; i < size_; ++i) {
      if (i == rank_ && IsSameMemory(pieces[i], call.send)) continue;
      after_.push_back({pieces[i], recvs[i]});
    }
  }
  // From where it lies, if NCCL can have it there.
  TensorView send = call.send;
  if (!send.IsContiguous()) {
    before_.push_back({recvs[rank_], send});
    send = recvs[rank_];
  }
  send = send.Flattened();
  recvs = Flattened(recvs);
  for (int i = 0; i < (is_even ? 1 : size_); ++i) {
    const int64_t count = recvs[i].num_elements();
    if (count == 0) continue;
    if (is_even) {
      calls_.push_back({Function::kAllGather, send, recvs[0], count});
    } else {
      calls_.push_back({Function::kBroadcast, i == rank_ ? send : TensorView(),
                        recvs[i], count, ReduceOp::kSum, i});
    }
  }
  return absl::OkStatus();
}

absl::Status NcclLaunch::AddAllToAll(const Collective& call) {
  for (int peer = 0; peer < size_; ++peer) {
    const TensorView send = call.SendPiece(peer, size_);
    const TensorView recv = call.RecvPiece(peer, size_);
    if (peer == rank_) {
      before_.push_back({recv, send});
      continue;
    }
    TESSERA_RETURN_IF_ERROR(AddSend(peer, send));
    TESSERA_RETURN_IF_ERROR(AddRecv(peer, recv));
  }
  return absl::OkStatus();
}

absl::Status NcclLaunch::AddBroadcast(const Collective& call) {
  const int64_t count = call.recv.num_elements();
  if (count == 0) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const TensorView buffer, rank_ == call.root
                                                        ? DenseSend(call.send)
                                                        : DenseRecv(call.recv));
  calls_.push_back({Function::kBroadcast,
                    rank_ == call.root ? buffer : TensorView(), buffer, count,
                    ReduceOp::kSum, call.root});
  return absl::OkStatus();
}

absl::Status NcclLaunch::AddSendRecv(const Collective& call) {
  for (const Transfer& t : call.sends) {
    if (t.peer != rank_) TESSERA_RETURN_IF_ERROR(AddSend(t.peer, t.view));
  }
  for (const Transfer& t : call.recvs) {
    if (t.peer != rank_) TESSERA_RETURN_IF_ERROR(AddRecv(t.peer, t.view));
  }
  MessagesWith to_self(rank_, call.sends);
  MessagesWith from_self(rank_, call.recvs);
  while (const Transfer* const recv = from_self.Next()) {
    before_.push_back({recv->view, to_self.Next()->view});
  }
  return absl::OkStatus();
}

// One number, whatever it is.
absl::Status NcclLaunch::AddBarrier() {
  const TensorView number = TensorView::Flat(nullptr, DType::kI32, 1);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<TensorView> staged,
                           Stage({&number, 1}));
  calls_.push_back(
      {Function::kAllReduce, staged[0], staged[0], 1, ReduceOp::kMax});
  return absl::OkStatus();
}

absl::Status NcclLaunch::AddSend(int peer, const TensorView& view) {
  const int64_t count = view.num_elements();
  if (count == 0) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const TensorView send, DenseSend(view));
  calls_.push_back(
      {Function::kSend, send, TensorView(), count, ReduceOp::kSum, peer});
  return absl::OkStatus();
}

absl::Status NcclLaunch::AddRecv(int peer, const TensorView& view) {
  const int64_t count = view.num_elements();
  if (count == 0) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const TensorView recv, DenseRecv(view));
  calls_.push_back(
      {Function::kRecv, TensorView(), recv, count, ReduceOp::kSum, peer});
  return absl::OkStatus();
}

// Running.

absl::Status NcclLaunch::CopyBefore() {
  for (const Copy& copy : before_) {
    TESSERA_RETURN_IF_ERROR(
        stream_.device().kernels().Copy(stream_, copy.dst, copy.src));
  }
  return absl::OkStatus();
}

absl::Status NcclLaunch::CopyAfter() {
  Kernels& kernels = stream_.device().kernels();
  for (const Scaling& scaling : scalings_) {
    TESSERA_RETURN_IF_ERROR(
        kernels.Scale(stream_, scaling.view, scaling.factor));
  }
  for (const Copy& copy : after_) {
    TESSERA_RETURN_IF_ERROR(kernels.Copy(stream_, copy.dst, copy.src));
  }
  return absl::OkStatus();
}

ncclResult_t NcclLaunch::Call(ncclComm_t comm) const {
  const auto stream = static_cast<cudaStream_t>(stream_.native_handle());
  const auto make = [&](const NcclCall& call) {
    const TensorView& given =
        call.send.data() != nullptr ? call.send : call.recv;
    const ncclDataType_t type = NcclType(given.dtype());
    const ncclRedOp_t op = NcclOp(call.op);
    const void* const send = call.send.data();
    void* const recv = call.recv.data();
    const auto count = static_cast<size_t>(call.count);
    switch (call.function) {
      case Function::kAllReduce:
        return ncclAllReduce(send, recv, count, type, op, comm, stream);
      case Function::kReduceScatter:
        return ncclReduceScatter(send, recv, count, type, op, comm, stream);
      case Function::kReduce:
        return ncclReduce(send, recv, count, type, op, call.peer, comm, stream);
      case Function::kAllGather:
        return ncclAllGather(send, recv, count, type, comm, stream);
      case Function::kBroadcast:
        return ncclBroadcast(send, recv, count, type, call.peer, comm, stream);
      case Function::kSend:
        return ncclSend(send, count, type, call.peer, comm, stream);
      case Function::kRecv:
        return ncclRecv(recv, count, type, call.peer, comm, stream);
    }
    return ncclInternalError;
  };
  for (const NcclCall& call : calls_) {
    const ncclResult_t result = make(call);
    if (result != ncclSuccess && result != ncclInProgress) return result;
  }
  return ncclSuccess;
}

std::vector<MemoryRange> NcclLaunch::Memory() const {
  std::vector<MemoryRange> memory;
  for (const NcclCall& call : calls_) {
    for (const TensorView* view : {&call.send, &call.recv}) {
      if (view->data() != nullptr) memory.emplace_back(*view);
    }
  }
  return memory;
}

}  // namespace tessera::internal
