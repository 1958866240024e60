#ifndef TESSERA_MESH_COLLECTIVE_TIME_H_
#define TESSERA_MESH_COLLECTIVE_TIME_H_

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "tessera/base/checked_math.h"
#include "tessera/base/rate.h"
#include "tessera/mesh/topology.h"

namespace tessera::internal {

// By bandwidth, then by latency.
inline bool IsSlower(const Link& a, const Link& b) {
  return std::tuple(a.bytes_per_second, -a.latency_ps) <
         std::tuple(b.bytes_per_second, -b.latency_ps);
}

// The time that the messages of a collective take a rank, its launch aside:
//
//   CollectiveTime time({.messages = 7, .bytes = 7 * kPiece,
//                        .largest_message = kPiece});
//   time.Add(4, latency_ps_of_slow_links, rate_of_slow_links);
//   time.Add(3, latency_ps_of_fast_links, rate_of_fast_links);
//   time.picoseconds()
//
// Bytes are shared out to the messages, the most expensive ones first, none
// larger than the largest. Not thread-safe.
class CollectiveTime {
 public:
  struct Load {
    int64_t messages = 0;
    int64_t hops_per_message = 1;
    int64_t bytes = 0;            // of all messages
    int64_t largest_message = 0;  // bytes
  };

  explicit CollectiveTime(const Load& load) : left_(load) {}

  // So many of the messages go over links of this price: the slowest first.
  void Add(int64_t messages, int64_t latency_ps, const Rate& rate) {
    left_.messages -= messages;
    const int64_t carried =
        left_.messages == 0
            ? left_.bytes
            : std::min(left_.bytes,
                       SaturatingMul(messages, left_.largest_message));
    left_.bytes -= carried;
    const int64_t latency =
        SaturatingMul(left_.hops_per_message * messages, latency_ps);
    picoseconds_ = SaturatingAdd(picoseconds_,
                                 SaturatingAdd(latency, rate.TimeFor(carried)));
  }

  int64_t picoseconds() const { return picoseconds_; }

 private:
  Load left_;
  int64_t picoseconds_ = 0;
};

}  // namespace tessera::internal

#endif  // TESSERA_MESH_COLLECTIVE_TIME_H_
