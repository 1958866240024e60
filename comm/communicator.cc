#include "tessera/comm/communicator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/device.h"

namespace tessera {
namespace {

// The functions below return what is wrong with a call, or "".

std::string CheckDtypeReduces(ReduceOp op, DType dtype) {
  if (op != ReduceOp::kAvg || IsFloating(dtype)) return "";
  return absl::StrCat("avg wants a floating dtype, found ", DTypeName(dtype));
}

std::string CheckCut(absl::string_view what, const TensorView& view, int dim,
                     const ExtentSplit& split, int parts) {
  if (dim < 0 || dim >= view.shape().num_dims()) {
    return absl::StrCat("dim ", dim, " is out of range for ", what, " ",
                        view.meta().ToString());
  }
  if (!split.Fits(view.shape().extent(dim), parts)) {
    return absl::StrCat("split ", split.ToString(), " does not divide dim ",
                        dim, " of ", what, " ", view.meta().ToString(),
                        " over ", parts, " ranks");
  }
  return "";
}

std::string CheckSame(absl::string_view wanted_name, const TensorMeta& wanted,
                      absl::string_view found_name, const TensorMeta& found) {
  if (wanted == found) return "";
  return absl::StrCat(found_name, " is ", found.ToString(), ", want ",
                      wanted.ToString(), " as ", wanted_name);
}

std::string CheckReduceScatter(const Collective& call, int rank, int size) {
  std::string problem = CheckDtypeReduces(call.op, call.send.dtype());
  if (problem.empty()) {
    problem = CheckCut("send", call.send, call.send_dim, call.send_split, size);
  }
  if (!problem.empty()) return problem;
  return CheckSame("this rank's piece of send",
                   call.SendPiece(rank, size).meta(), "recv", call.recv.meta());
}

std::string CheckAllGather(const Collective& call, int rank, int size) {
  std::string problem =
      CheckCut("recv", call.recv, call.recv_dim, call.recv_split, size);
  if (!problem.empty()) return problem;
  return CheckSame("this rank's piece of recv",
                   call.RecvPiece(rank, size).meta(), "send", call.send.meta());
}

std::string CheckAllToAll(const Collective& call, int rank, int size) {
  std::string problem =
      CheckCut("send", call.send, call.send_dim, call.send_split, size);
  if (problem.empty()) {
    problem = CheckCut("recv", call.recv, call.recv_dim, call.recv_split, size);
  }
  if (!problem.empty()) return problem;
  return CheckSame(
      "this rank's piece of send", call.SendPiece(rank, size).meta(),
      "this rank's piece of recv", call.RecvPiece(rank, size).meta());
}

std::string CheckPeers(absl::Span<const Transfer> transfers, int size) {
  for (const Transfer& t : transfers) {
    if (t.peer < 0 || t.peer >= size) {
      return absl::StrCat("peer ", t.peer, " is not in a group of ", size);
    }
  }
  return "";
}

int CountWith(int peer, absl::Span<const Transfer> transfers) {
  return static_cast<int>(
      std::count_if(transfers.begin(), transfers.end(),
                    [peer](const Transfer& t) { return t.peer == peer; }));
}

std::string CheckSendRecv(const Collective& call, int rank, int size) {
  std::string problem = CheckPeers(call.sends, size);
  if (problem.empty()) problem = CheckPeers(call.recvs, size);
  if (!problem.empty()) return problem;

  MessagesWith sends(rank, call.sends);
  MessagesWith recvs(rank, call.recvs);
  for (int k = 0;; ++k) {
    const Transfer* const sent = sends.Next();
    const Transfer* const received = recvs.Next();
    if (sent == nullptr && received == nullptr) return "";
    if (sent == nullptr || received == nullptr) {
      return absl::StrCat(
          "this rank sends itself ", CountWith(rank, call.sends),
          " messages and receives ", CountWith(rank, call.recvs));
    }
    if (sent->view.meta() != received->view.meta()) {
      return CheckSame("this rank sends itself", sent->view.meta(),
                       absl::StrCat("receive ", k), received->view.meta());
    }
  }
}

std::string CheckCall(const Collective& call, int rank, int size) {
  switch (call.kind) {
    case CollectiveKind::kAllReduce: {
      std::string problem = CheckDtypeReduces(call.op, call.send.dtype());
      if (!problem.empty()) return problem;
      return CheckSame("send", call.send.meta(), "recv", call.recv.meta());
    }
    case CollectiveKind::kReduceScatter:
      return CheckReduceScatter(call, rank, size);
    case CollectiveKind::kAllGather:
      return CheckAllGather(call, rank, size);
    case CollectiveKind::kAllToAll:
      return CheckAllToAll(call, rank, size);
    case CollectiveKind::kBroadcast:
      if (call.root < 0 || call.root >= size) {
        return absl::StrCat("root ", call.root, " is not in a group of ", size);
      }
      return IsSameMemory(call.send, call.recv)
                 ? ""
                 : "want send and recv the same memory";
    case CollectiveKind::kSendRecv:
      return CheckSendRecv(call, rank, size);
    case CollectiveKind::kBarrier:
      return "";
  }
  return "";
}

int64_t NumElements(absl::Span<const Transfer> transfers) {
  int64_t elements = 0;
  for (const Transfer& t : transfers) elements += t.view.num_elements();
  return elements;
}

absl::Status CopyWhereDifferent(Stream& stream, const TensorView& dst,
                                const TensorView& src) {
  if (IsSameMemory(dst, src)) return absl::OkStatus();
  return stream.device().kernels().Copy(stream, dst, src);
}

// A checked call in a group of one rank.
absl::Status RunAlone(Stream& stream, const Collective& call) {
  for (size_t k = 0; k < call.sends.size(); ++k) {
    TESSERA_RETURN_IF_ERROR(
        CopyWhereDifferent(stream, call.recvs[k].view, call.sends[k].view));
  }
  return CopyWhereDifferent(stream, call.recv, call.send);
}

}  // namespace

Communicator::Communicator(std::vector<int> members, int rank,
                           absl::string_view name, Stream& stream,
                           std::shared_ptr<CommLog> log)
    : members_(std::move(members)),
      rank_(rank),
      name_(name),
      stream_(stream),
      log_(std::move(log)) {
  record_.communicator = name_;
  record_.group_size = size();
}

absl::Status Communicator::AllReduce(ReduceOp op, const TensorView& send,
                                     const TensorView& recv) {
  Collective call;
  call.kind = CollectiveKind::kAllReduce;
  call.op = op;
  call.send = send;
  call.recv = recv;
  return Issue(call);
}

absl::Status Communicator::ReduceScatter(ReduceOp op, const TensorView& send,
                                         const TensorView& recv, int dim,
                                         const ExtentSplit& split) {
  Collective call;
  call.kind = CollectiveKind::kReduceScatter;
  call.op = op;
  call.send = send;
  call.recv = recv;
  call.send_dim = dim;
  call.send_split = split;
  return Issue(call);
}

absl::Status Communicator::AllGather(const TensorView& send,
                                     const TensorView& recv, int dim,
                                     const ExtentSplit& split) {
  Collective call;
  call.kind = CollectiveKind::kAllGather;
  call.send = send;
  call.recv = recv;
  call.recv_dim = dim;
  call.recv_split = split;
  return Issue(call);
}

absl::Status Communicator::AllToAll(const TensorView& send, int send_dim,
                                    const ExtentSplit& send_split,
                                    const TensorView& recv, int recv_dim,
                                    const ExtentSplit& recv_split) {
  Collective call;
  call.kind = CollectiveKind::kAllToAll;
  call.send = send;
  call.send_dim = send_dim;
  call.send_split = send_split;
  call.recv = recv;
  call.recv_dim = recv_dim;
  call.recv_split = recv_split;
  return Issue(call);
}

absl::Status Communicator::Broadcast(const TensorView& buffer, int root) {
  Collective call;
  call.kind = CollectiveKind::kBroadcast;
  call.send = buffer;
  call.recv = buffer;
  call.root = root;
  return Issue(call);
}

absl::Status Communicator::SendRecv(absl::Span<const Transfer> sends,
                                    absl::Span<const Transfer> recvs) {
  Collective call;
  call.kind = CollectiveKind::kSendRecv;
  call.sends = sends;
  call.recvs = recvs;
  return Issue(call);
}

absl::Status Communicator::Barrier() {
  Collective call;
  call.kind = CollectiveKind::kBarrier;
  return Issue(call);
}

absl::Status Communicator::Issue(absl::Span<const Collective> calls) {
  for (const Collective& call : calls) {
    const std::string problem = CheckCall(call, rank_, size());
    if (problem.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("comm: ", CollectiveKindName(call.kind), " of '", name_,
                     "' on rank ", members_[rank_], ": ", problem));
  }
  if (calls.empty()) return absl::OkStatus();
  if (size() == 1) {
    for (const Collective& call : calls) {
      TESSERA_RETURN_IF_ERROR(RunAlone(stream_, call));
    }
    return absl::OkStatus();
  }

  const int64_t sequence = sequence_++;
  for (const Collective& call : calls) {
    if (call.kind != CollectiveKind::kBarrier) Record(call, sequence);
  }
  return Enqueue(calls, sequence);
}

void Communicator::Record(const Collective& call, int64_t sequence) {
  record_.sequence = sequence;
  record_.kind = call.kind;
  record_.op = call.op;
  record_.bytes_received = call.BytesReceived(rank_, size());
  if (call.kind == CollectiveKind::kSendRecv) {
    const absl::Span<const Transfer> some =
        call.sends.empty() ? call.recvs : call.sends;
    record_.dtype = some.empty() ? DType::kF32 : some[0].view.dtype();
    record_.elements =
        std::max(NumElements(call.sends), NumElements(call.recvs));
  } else {
    record_.dtype = call.recv.dtype();
    record_.elements =
        std::max(call.send.num_elements(), call.recv.num_elements());
  }
  log_->Append(record_, progress_);
}

absl::Status Communicator::CheckMembers(absl::Span<const int> members,
                                        absl::string_view name) const {
  const auto error = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: subgroup '", name, "' (", absl::StrJoin(members, ","), ") of '",
        name_, "' on its rank ", rank_, ": ", problem));
  };
  std::vector<bool> seen(size(), false);
  for (int member : members) {
    if (member < 0 || member >= size()) {
      return error(
          absl::StrCat("member ", member, " is not in a group of ", size()));
    }
    if (seen[member]) return error(absl::StrCat("member ", member, " repeats"));
    seen[member] = true;
  }
  if (!seen[rank_]) return error("this rank is not a member");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Subgroup(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckMembers(members, name));
  return MakeSubgroup(members, name, stream);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Partition(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  if (!members.empty()) {
    TESSERA_RETURN_IF_ERROR(CheckMembers(members, name));
  }
  return MakePartition(members, name, stream);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::MakePartition(
    absl::Span<const int> members, absl::string_view name, Stream& stream) {
  if (members.empty()) return nullptr;
  return MakeSubgroup(members, name, stream);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(
    int color, int key, absl::string_view name, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> given,
                           HostAllGather(absl::StrCat(color, " ", key)));
  std::vector<std::pair<int, int>> chosen;  // key, rank
  for (int r = 0; r < size(); ++r) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(given[r], ' ');
    int its_color = 0;
    int its_key = 0;
    if (!absl::SimpleAtoi(words.first, &its_color) ||
        !absl::SimpleAtoi(words.second, &its_key)) {
      return absl::InternalError(absl::StrCat(
          "comm: split of '", name_, "': rank ", r, " gave '", given[r], "'"));
    }
    if (color >= 0 && its_color == color) chosen.emplace_back(its_key, r);
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<int> members;
  members.reserve(chosen.size());
  for (const auto& [its_key, r] : chosen) members.push_back(r);
  return Partition(members, name, stream);
}

Communicator::Subset Communicator::SubsetOf(
    absl::Span<const int> members) const {
  Subset subset;
  for (int member : members) {
    if (member == rank_) subset.rank = static_cast<int>(subset.members.size());
    subset.members.push_back(members_[member]);
  }
  return subset;
}

}  // namespace tessera
