#include "tessera/comm/calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::internal {
namespace {

int Size(Calls calls) { return static_cast<int>(calls.size()); }

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

}  // namespace tessera::internal
