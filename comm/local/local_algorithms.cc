#include "tessera/comm/local/local_algorithms.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/device/cpu/elementwise.h"

namespace tessera::internal {
namespace {

int Size(Calls calls) { return static_cast<int>(calls.size()); }

void CopyWhereDifferent(const TensorView& dst, const TensorView& src) {
  // A peer may be reading memory that is sent in place: do not touch it.
  if (!IsSameMemory(dst, src)) CopyElements(dst, src);
}

// The messages of `transfers` with one peer: visits them in order.
class MessagesWith {
 public:
  MessagesWith(int peer, const std::vector<Transfer>& transfers)
      : peer_(peer), transfers_(transfers) {}

  const Transfer* Next() {
    while (next_ < transfers_.size()) {
      const Transfer& t = transfers_[next_++];
      if (t.peer == peer_) return &t;
    }
    return nullptr;
  }

 private:
  const int peer_;
  const std::vector<Transfer>& transfers_;
  size_t next_ = 0;
};

std::string DescribeSignatures(Calls calls, absl::Span<const int> ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (int i = 0; i < Size(calls); ++i) {
    std::string signature = calls[i]->Signature();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
      return g.first == signature;
    });
    if (group == groups.end()) {
      group = groups.insert(group, {std::move(signature), {}});
    }
    group->second.push_back(ranks[i]);
  }
  return absl::StrJoin(groups, ", ", [](std::string* out, const auto& g) {
    const bool one = g.second.size() == 1;
    absl::StrAppend(out, one ? "rank " : "ranks ", absl::StrJoin(g.second, ","),
                    one ? " calls " : " call ", g.first);
  });
}

std::string DescribeMismatch(const TensorMeta* sent, int sender,
                             const TensorMeta* wanted, int receiver) {
  const auto text = [](const TensorMeta* meta) {
    return meta == nullptr ? "nothing more" : meta->ToString();
  };
  return absl::StrCat("rank ", sender, " sends ", text(sent), " to rank ",
                      receiver, ", which expects ", text(wanted));
}

std::string CompareAllToAll(Calls calls, absl::Span<const int> ranks) {
  const int n = Size(calls);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      const TensorMeta sent = calls[from]->SendPiece(to, n).meta();
      const TensorMeta wanted = calls[to]->RecvPiece(from, n).meta();
      if (sent != wanted) {
        return DescribeMismatch(&sent, ranks[from], &wanted, ranks[to]);
      }
    }
  }
  return "";
}

std::string CompareMessages(Calls calls, absl::Span<const int> ranks) {
  const auto meta = [](const Transfer* t) {
    return t == nullptr ? nullptr : &t->view.meta();
  };
  for (int from = 0; from < Size(calls); ++from) {
    for (int to = 0; to < Size(calls); ++to) {
      MessagesWith sends(to, calls[from]->sends);
      MessagesWith recvs(from, calls[to]->recvs);
      const Transfer* sent = sends.Next();
      const Transfer* wanted = recvs.Next();
      while (sent != nullptr && wanted != nullptr &&
             *meta(sent) == *meta(wanted)) {
        sent = sends.Next();
        wanted = recvs.Next();
      }
      if (sent != nullptr || wanted != nullptr) {
        return DescribeMismatch(meta(sent), ranks[from], meta(wanted),
                                ranks[to]);
      }
    }
  }
  return "";
}

// How the elements of an all-reduce are cut into one piece per rank: flat
// where everybody's memory is dense, else along the longest dim.
class AllReduceCut {
 public:
  explicit AllReduceCut(Calls calls) : parts_(Size(calls)) {
    flat_ = std::all_of(calls.begin(), calls.end(), [](const Collective* c) {
      return c->send.IsContiguous() && c->recv.IsContiguous();
    });
    if (flat_) return;
    const absl::Span<const int64_t> extents = calls[0]->send.shape().extents();
    dim_ = static_cast<int>(std::max_element(extents.begin(), extents.end()) -
                            extents.begin());
  }

  TensorView Piece(const TensorView& view, int index) const {
    const TensorView whole = flat_ ? view.Flattened() : view;
    const int64_t extent = whole.shape().extent(dim_);
    return whole.Slice(dim_, CeilSplit(extent, parts_, index));
  }

 private:
  const int parts_;
  bool flat_;
  int dim_ = 0;
};

// Phase 0: this rank's piece of the result. Phase 1: the others' pieces.
void AllReducePart(Calls calls, int phase, int rank) {
  const AllReduceCut cut(calls);
  const TensorView& recv = calls[rank]->recv;
  if (phase == 1) {
    for (int peer = 0; peer < Size(calls); ++peer) {
      if (peer == rank) continue;
      CopyElements(cut.Piece(recv, peer), cut.Piece(calls[peer]->recv, peer));
    }
    return;
  }
  std::vector<TensorView> sources;
  sources.reserve(calls.size());
  for (const Collective* call : calls) {
    sources.push_back(cut.Piece(call->send, rank));
  }
  ReduceElements(calls[rank]->op, cut.Piece(recv, rank), sources);
}

// An all-reduce without cuts. In place, rank 0's send is overwritten, by then
// read; then the others' are.
void AllReduceAlone(Calls calls) {
  std::vector<TensorView> sources;
  sources.reserve(calls.size());
  for (const Collective* call : calls) sources.push_back(call->send);
  const TensorView& result = calls[0]->recv;
  ReduceElements(calls[0]->op, result, sources);
  for (const Collective* call : calls.subspan(1)) {
    CopyElements(call->recv, result);
  }
}

void ReduceScatterPart(Calls calls, int rank) {
  std::vector<TensorView> sources;
  sources.reserve(calls.size());
  for (const Collective* call : calls) {
    sources.push_back(call->SendPiece(rank, Size(calls)));
  }
  ReduceElements(calls[rank]->op, calls[rank]->recv, sources);
}

void AllGatherPart(Calls calls, int rank) {
  for (int peer = 0; peer < Size(calls); ++peer) {
    CopyWhereDifferent(calls[rank]->RecvPiece(peer, Size(calls)),
                       calls[peer]->send);
  }
}

void AllToAllPart(Calls calls, int rank) {
  for (int peer = 0; peer < Size(calls); ++peer) {
    CopyElements(calls[rank]->RecvPiece(peer, Size(calls)),
                 calls[peer]->SendPiece(rank, Size(calls)));
  }
}

void SendRecvPart(Calls calls, int rank) {
  for (int peer = 0; peer < Size(calls); ++peer) {
    MessagesWith recvs(peer, calls[rank]->recvs);
    MessagesWith sends(rank, calls[peer]->sends);
    while (const Transfer* recv = recvs.Next()) {
      CopyElements(recv->view, sends.Next()->view);
    }
  }
}

}  // namespace

std::string FindDisagreement(Calls calls, absl::Span<const int> ranks) {
  for (const Collective* call : calls) {
    if (!calls[0]->Matches(*call)) return DescribeSignatures(calls, ranks);
  }
  switch (calls[0]->kind) {
    case CollectiveKind::kAllToAll:
      return CompareAllToAll(calls, ranks);
    case CollectiveKind::kSendRecv:
      return CompareMessages(calls, ranks);
    default:
      return "";
  }
}

int NumPhases(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2;
    case CollectiveKind::kBarrier:
      return 0;
    default:
      return 1;
  }
}

void RunPart(Calls calls, int phase, int rank) {
  switch (calls[rank]->kind) {
    case CollectiveKind::kAllReduce:
      return AllReducePart(calls, phase, rank);
    case CollectiveKind::kReduceScatter:
      return ReduceScatterPart(calls, rank);
    case CollectiveKind::kAllGather:
      return AllGatherPart(calls, rank);
    case CollectiveKind::kAllToAll:
      return AllToAllPart(calls, rank);
    case CollectiveKind::kBroadcast:
      return CopyWhereDifferent(calls[rank]->recv,
                                calls[calls[rank]->root]->send);
    case CollectiveKind::kSendRecv:
      return SendRecvPart(calls, rank);
    case CollectiveKind::kBarrier:
      return;
  }
}

void RunAlone(Calls calls) {
  if (calls[0]->kind == CollectiveKind::kAllReduce)
    return AllReduceAlone(calls);
  for (int phase = 0; phase < NumPhases(calls[0]->kind); ++phase) {
    for (int rank = 0; rank < Size(calls); ++rank) RunPart(calls, phase, rank);
  }
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
