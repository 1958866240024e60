#include "tessera/comm/local/local_algorithms.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// True if the piece that call `from` sends to group rank `to` has the shape of
// the one that call `to` receives from group rank `from`.
bool PiecesMatch(Calls calls, int from, int to) {
  const Collective& sender = *calls[from];
  const Collective& receiver = *calls[to];
  const absl::Span<const int64_t> sent = sender.send.shape().extents();
  const absl::Span<const int64_t> wanted = receiver.recv.shape().extents();
  if (sent.size() != wanted.size()) return false;
  for (int dim = 0; dim < static_cast<int>(sent.size()); ++dim) {
    const int64_t sent_extent =
        dim != sender.send_dim
            ? sent[dim]
            : sender.send_split.Piece(sent[dim], Size(calls), to).size();
    const int64_t wanted_extent =
        dim != receiver.recv_dim
            ? wanted[dim]
            : receiver.recv_split.Piece(wanted[dim], Size(calls), from).size();
    if (sent_extent != wanted_extent) return false;
  }
  return true;
}

// Of one dtype.
std::string CompareAllToAll(Calls calls, absl::Span<const int> ranks) {
  const int n = Size(calls);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (PiecesMatch(calls, from, to)) continue;
      const TensorMeta sent = calls[from]->SendPiece(to, n).meta();
      const TensorMeta wanted = calls[to]->RecvPiece(from, n).meta();
      return DescribeMismatch(&sent, ranks[from], &wanted, ranks[to]);
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

std::string FindDisagreement(
    absl::Span<const absl::Span<const Collective>> launches,
    absl::Span<const int> ranks, std::vector<const Collective*>& calls) {
  const size_t size = launches.size();
  const size_t count = launches.front().size();
  for (size_t rank = 0; rank < size; ++rank) {
    if (launches[rank].size() == count) continue;
    return absl::StrCat("rank ", ranks.front(), " launches ", count,
                        " calls at once, rank ", ranks[rank], " ",
                        launches[rank].size());
  }
  calls.clear();
  for (size_t i = 0; i < count; ++i) {
    for (absl::Span<const Collective> launch : launches) {
      calls.push_back(&launch[i]);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string difference = FindDisagreement(
        absl::MakeConstSpan(calls).subspan(i * size, size), ranks);
    if (difference.empty()) continue;
    return count == 1
               ? difference
               : absl::StrCat("call ", i, " of ", count, ": ", difference);
  }
  return "";
}

void AppendRanges(const Collective& call, std::vector<MemoryRange>& reads,
                  std::vector<MemoryRange>& writes) {
  if (call.send.data() != nullptr) reads.emplace_back(call.send);
  for (const Transfer& t : call.sends) reads.emplace_back(t.view);
  if (call.recv.data() != nullptr) writes.emplace_back(call.recv);
  for (const Transfer& t : call.recvs) writes.emplace_back(t.view);
}

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
