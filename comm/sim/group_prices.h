#ifndef TESSERA_COMM_SIM_GROUP_PRICES_H_
#define TESSERA_COMM_SIM_GROUP_PRICES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/base/rate.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/sim/link_tiers.h"
#include "tessera/mesh/collective_time.h"

namespace tessera::internal {

// What collectives of a group cost one of its members, as SimWorld says.
// Immutable; thread-safe. COST: making one looks at every member once, a price
// at none, explicit splits aside.
class GroupPrices {
 public:
  // Of `members[rank]`. REQUIRES: all members are ranks of the tiers' mesh.
  // LIFETIME: borrows both.
  GroupPrices(const LinkTiers& tiers, absl::Span<const int> members, int rank);

  // Picoseconds of calls that are one launch. REQUIRES: members.size() > 1.
  int64_t TimeOf(absl::Span<const Collective> calls) const;

 private:
  using Load = CollectiveTime::Load;
  // The links of one tier.
  struct Tier {
    int64_t messages = 0;    // from this member to the others, one to each
    int64_t latency_ps = 0;  // the highest of a message
    Rate rate;
  };

  int64_t size() const { return static_cast<int64_t>(members_.size()); }
  MeshCoords CoordsOf(int member) const;
  // What a member receives in a call that is no send_recv.
  Load LoadOf(const Collective& call) const;
  int64_t TimeOf(const Load& load) const;
  // Of the messages that the member receives in send_recv calls.
  int64_t TimeOfMessages(absl::Span<const Collective> calls) const;

  const LinkTiers& link_tiers_;
  const absl::Span<const int> members_;
  const int rank_;
  std::vector<Tier> tiers_;
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_SIM_GROUP_PRICES_H_
