#include "tessera/comm/sim/group_prices.h"

#include <algorithm>
#include <map>

#include "tessera/base/checked_math.h"
#include "tessera/tensor/index.h"

namespace tessera::internal {
namespace {

// Bytes of the pieces of a view.
struct PieceBytes {
  int64_t least = 0;
  int64_t largest = 0;
};

PieceBytes PiecesOf(const TensorView& view, int dim, const ExtentSplit& split,
                    int64_t parts) {
  const int64_t extent = view.shape().extent(dim);
  if (extent == 0) return {};
  const auto size = [&](int64_t i) {
    return split.Piece(extent, parts, i).size();
  };
  int64_t least = size(parts - 1);
  int64_t largest = size(0);
  if (!split.is_ceil()) {
    for (int64_t i = 0; i < parts; ++i) {
      least = std::min(least, size(i));
      largest = std::max(largest, size(i));
    }
  }
  const int64_t bytes = view.num_bytes() / extent;
  return {bytes * least, bytes * largest};
}

}  // namespace

GroupPrices::GroupPrices(const LinkTiers& tiers, absl::Span<const int> members,
                         int rank)
    : link_tiers_(tiers),
      members_(members),
      rank_(rank),
      tiers_(tiers.num_tiers()) {
  for (size_t tier = 0; tier < tiers_.size(); ++tier) {
    tiers_[tier].rate =
        Rate(tiers.link(static_cast<int>(tier)).bytes_per_second);
  }
  const MeshCoords own = CoordsOf(rank);
  for (int member = 0; member < size(); ++member) {
    if (member == rank) continue;
    const LinkTiers::Path path = tiers.Between(own, CoordsOf(member));
    Tier& tier = tiers_[path.tier];
    ++tier.messages;
    tier.latency_ps = std::max(tier.latency_ps, path.latency_ps);
  }
}

MeshCoords GroupPrices::CoordsOf(int member) const {
  return *link_tiers_.mesh().CoordsOf(members_[member]);
}

int64_t GroupPrices::TimeOf(absl::Span<const Collective> calls) const {
  // Calls of one kind share their messages.
  std::map<CollectiveKind, Load> loads;
  for (const Collective& call : calls) {
    const Load load = LoadOf(call);
    const auto [shared, is_new] = loads.try_emplace(call.kind, load);
    if (is_new) continue;
    shared->second.bytes = SaturatingAdd(shared->second.bytes, load.bytes);
    shared->second.largest_message =
        SaturatingAdd(shared->second.largest_message, load.largest_message);
  }
  int64_t time = link_tiers_.launch_ps();
  for (const auto& [kind, load] : loads) {
    time = SaturatingAdd(time, TimeOf(load));
  }
  return SaturatingAdd(time, TimeOfMessages(calls));
}

GroupPrices::Load GroupPrices::LoadOf(const Collective& call) const {
  const int64_t n = size();
  Load load = {.messages = n - 1};
  switch (call.kind) {
    case CollectiveKind::kAllReduce: {
      const int64_t elements = call.recv.num_elements();
      const int64_t piece = CeilDiv(elements, n);
      const int64_t width = SizeOf(call.recv.dtype());
      load.hops_per_message = 2;
      load.bytes = SaturatingMul(elements + (n - 2) * piece, width);
      load.largest_message = 2 * piece * width;
      return load;
    }
    case CollectiveKind::kReduceScatter: {
      const PieceBytes pieces =
          PiecesOf(call.send, call.send_dim, call.send_split, n);
      load.bytes = SaturatingMul(n - 1, pieces.largest);
      load.largest_message = pieces.largest;
      return load;
    }
    case CollectiveKind::kAllGather: {
      const PieceBytes pieces =
          PiecesOf(call.recv, call.recv_dim, call.recv_split, n);
      load.bytes = call.recv.num_bytes() - pieces.least;
      load.largest_message = pieces.largest;
      return load;
    }
    case CollectiveKind::kAllToAll:
      load.bytes = call.BytesReceived(rank_, static_cast<int>(n));
      load.largest_message =
          PiecesOf(call.recv, call.recv_dim, call.recv_split, n).largest;
      return load;
    case CollectiveKind::kBroadcast:
      load.bytes = call.recv.num_bytes();
      load.largest_message = load.bytes;
      return load;
    case CollectiveKind::kBarrier:
      return load;
    case CollectiveKind::kSendRecv:
      return {};
  }
  return load;
}

int64_t GroupPrices::TimeOf(const Load& load) const {
  CollectiveTime time(load);
  if (load.messages == 0) return 0;
  for (const Tier& tier : tiers_) {
    if (tier.messages == 0) continue;
    time.Add(tier.messages, tier.latency_ps, tier.rate);
  }
  return time.picoseconds();
}

int64_t GroupPrices::TimeOfMessages(absl::Span<const Collective> calls) const {
  std::vector<int64_t> bytes(tiers_.size(), 0);
  const MeshCoords own = CoordsOf(rank_);
  int64_t time = 0;
  for (const Collective& call : calls) {
    for (const Transfer& transfer : call.recvs) {
      if (transfer.peer == rank_) continue;
      const LinkTiers::Path path =
          link_tiers_.Between(own, CoordsOf(transfer.peer));
      time = SaturatingAdd(time, path.latency_ps);
      bytes[path.tier] += transfer.view.num_bytes();
    }
  }
  for (size_t tier = 0; tier < tiers_.size(); ++tier) {
    time = SaturatingAdd(time, tiers_[tier].rate.TimeFor(bytes[tier]));
  }
  return time;
}

}  // namespace tessera::internal
