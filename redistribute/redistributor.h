#ifndef TESSERA_REDISTRIBUTE_REDISTRIBUTOR_H_
#define TESSERA_REDISTRIBUTE_REDISTRIBUTOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/base/lru_map.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/memory.h"
#include "tessera/device/stream.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/execute.h"
#include "tessera/redistribute/plan.h"
#include "tessera/redistribute/plan_cache.h"
#include "tessera/redistribute/plan_ends.h"
#include "tessera/redistribute/sharded_tensor.h"

namespace tessera {

// Redistributes the tensors of one rank on one stream, over and over: plans
// come from a cache, stay prepared, and share one workspace, which grows to
// what the largest of them needs.
//
//   PlanCache plans(topology, /*capacity=*/1024);  // one for all ranks
//   Redistributor redistributor(plans, comms, stream);
//   TESSERA_ASSIGN_OR_RETURN(ShardedTensor whole,
//                            redistributor.Redistribute(shards, replicated));
//
// A redistribution between layouts that were met before, into memory that is
// there, allocates nothing, as long as tensors have at most four dims.
//
// One call at a time. COLLECTIVE, in the same order on all ranks, as
// PreparedPlan::Execute, and as Prepare where layouts are met first.
// LIFETIME: all that it is made of outlives it. Not movable.
class Redistributor {
 public:
  static constexpr int64_t kDefaultCapacity = 1024;

  // Keeps that many plans prepared, those asked for last. REQUIRES: at least 1.
  Redistributor(PlanCache& plans, CommSet& comms, Stream& stream,
                int64_t capacity = kDefaultCapacity)
      : plans_(plans), comms_(comms), stream_(stream), prepared_(capacity) {}
  ~Redistributor() { workspace_.ResetAfter(stream_); }
  Redistributor(const Redistributor&) = delete;
  Redistributor& operator=(const Redistributor&) = delete;

  // A new tensor on the stream's device.
  // ERRORS: those of PlanCache::Get, Prepare and PreparedPlan::Execute;
  // ResourceExhausted.
  absl::StatusOr<ShardedTensor> Redistribute(const ShardedTensor& source,
                                             const Layout& target);

  // Into the memory of `target`, whose layout says where to. The two do not
  // overlap. ERRORS: the same.
  absl::Status RedistributeInto(const ShardedTensor& source,
                                const ShardedTensor& target);

  // The plan of a redistribution, ready. ERRORS: those of PlanCache::Get and
  // Prepare. LIFETIME: until another plan takes its place.
  absl::StatusOr<PreparedPlan*> Prepare(const Layout& source,
                                        const Layout& target);

 private:
  // At least that much, for what is enqueued next.
  absl::StatusOr<Workspace> WorkspaceOf(int64_t bytes);

  PlanCache& plans_;
  CommSet& comms_;
  Stream& stream_;
  LruMap<internal::PlanEnds, PreparedPlan> prepared_;  // which hold the plans
  Buffer workspace_;
};

}  // namespace tessera

#endif  // TESSERA_REDISTRIBUTE_REDISTRIBUTOR_H_
