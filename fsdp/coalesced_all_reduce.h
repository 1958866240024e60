#ifndef TESSERA_FSDP_COALESCED_ALL_REDUCE_H_
#define TESSERA_FSDP_COALESCED_ALL_REDUCE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/log.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/stream.h"
#include "tessera/mesh/device_mesh.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/sharded_tensor.h"
#include "tessera/redistribute/workspace.h"
#include "tessera/tensor/reduce_op.h"
#include "tessera/tensor/tensor_view.h"

namespace tessera {

// The tag of the memory that chunks are packed in.
inline constexpr char kCoalescedChunkTag[] = "coalesced_chunk";

// The most bytes of a chunk, where options do not say.
inline constexpr char kChunkBytesVariable[] =
    "TESSERA_GRAD_COALESCE_CHUNK_BYTES";
inline constexpr int64_t kDefaultChunkBytes = int64_t{1} << 30;

// What this rank holds of a tensor, and its layout where that is known.
// LIFETIME: borrows the memory.
struct CoalescedTensor {
  // NOLINTNEXTLINE(google-explicit-constructor)
  CoalescedTensor(const TensorView& view) : local(view) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  CoalescedTensor(const ShardedTensor& tensor)
      : local(tensor.local()), layout(tensor.layout()) {}

  TensorView local;  // contiguous, possibly empty
  std::optional<Layout> layout;
};

// All-reduces lists of gradients in place, along a mesh axis that has to agree
// on them beside those that a Context reduces over: of norm weights under
// sequence parallelism, for one. It takes few calls, and little memory.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       auto coalesced, CoalescedAllReduce::Create(mesh, comms, {}));
//   std::vector<CoalescedTensor> sums;
//   for (Unit* unit : units) {
//     TESSERA_ASSIGN_OR_RETURN(auto gradient, unit->main_grad(norm));
//     sums.emplace_back(gradient);  // its layout says R along "tp"
//   }
//   TESSERA_RETURN_IF_ERROR(coalesced.Run("tp", sums, {}, compute));
//
// The time for gradients of a Context is after the last backward, before they
// are clipped or the optimizer steps, on the compute stream.
//
// Chunks. Of every op and dtype, tensors in list order form one sequence of
// elements, cut every max(1, floor(max chunk bytes / element size)) of them:
// that many all-reduces, all sums before all averages, dtype by dtype. A chunk
// that lies in one contiguous range of memory, of one tensor or of neighbours,
// is reduced where it lies; any other is packed, and unpacked behind. The bytes
// on the wire are those of one all-reduce of all. On `local`, bits do not
// depend on the chunk size; other backends may reduce in an order that depends
// on where in a call an element is.
//
// One object per context: it keeps which lists its ranks have compared and what
// it has logged. One call at a time. LIFETIME: borrows the communicators.
class CoalescedAllReduce {
 public:
  struct Options {
    // Of a chunk, at least 1. Default: the environment variable
    // TESSERA_GRAD_COALESCE_CHUNK_BYTES, else 1 GiB. A variable that is no
    // positive number is a warning, and counts as not set.
    std::optional<int64_t> max_chunk_bytes = std::nullopt;
    // Where the first use for an axis and op says, as information:
    // "coalesced all-reduce axis=tp op=sum chunk=1024 MiB".
    Logger logger = {};
  };

  // ERRORS: InvalidArgument for max_chunk_bytes below 1.
  static absl::StatusOr<CoalescedAllReduce> Create(DeviceMesh mesh,
                                                   CommSet& comms,
                                                   Options options);

  int64_t max_chunk_bytes() const { return chunk_bytes_; }

  // Enqueues on `stream`: every tensor becomes the sum (average) over the ranks
  // along `axis`. A tensor with a layout is R or P(op) there: R where ranks
  // hold parts of the value that the layout does not tell of, P(op) where it
  // does, and then the handle is outdated by this.
  //
  // COLLECTIVE over the axis. The first call with lists of new shapes blocks
  // the host while ranks compare them, as plans are compared; later ones do
  // not, and a rank that comes with a new list then is one that others wait for
  // until the timeout. An axis of size 1 has nothing to do.
  // COST: ceil(elements / chunk elements) all-reduces per op and dtype. Where
  // chunks are packed, memory for the largest of them: `workspace`, or, without
  // one, of the stream's device under kCoalescedChunkTag, freed in stream
  // order.
  // LIFETIME: the memory stays until the stream has come past.
  // ERRORS: InvalidArgument for an axis that the mesh does not have, a view
  // that is not contiguous, averages of integers, a layout on another mesh, one
  // that is P of another op along the axis, naming both, or holds pieces there,
  // or a workspace that is too small; FailedPrecondition, on every rank, where
  // pieces or chunk sizes differ between the ranks of the axis, naming the
  // first difference; ResourceExhausted; up to here with nothing enqueued.
  // Those of Communicator and Stream: then the content is lost, the error stays
  // in the stream, and the axis's group is aborted.
  absl::Status Run(absl::string_view axis,
                   absl::Span<const CoalescedTensor> sums,
                   absl::Span<const CoalescedTensor> averages, Stream& stream,
                   Workspace workspace = {});

 private:
  CoalescedAllReduce(DeviceMesh mesh, CommSet& comms, int64_t chunk_bytes,
                     Logger logger)
      : mesh_(std::move(mesh)),
        comms_(&comms),
        chunk_bytes_(chunk_bytes),
        logger_(std::move(logger)) {}

  absl::Status Check(int axis, ReduceOp op,
                     absl::Span<const CoalescedTensor> tensors) const;
  // Compares, the first time, what the ranks of `group` are about to do.
  absl::Status Agree(Communicator& group,
                     absl::Span<const CoalescedTensor> sums,
                     absl::Span<const CoalescedTensor> averages);
  void LogFirstUse(absl::string_view axis, ReduceOp op);

  DeviceMesh mesh_;
  CommSet* comms_;
  int64_t chunk_bytes_;
  Logger logger_;
  absl::flat_hash_set<uint64_t> agreed_;  // fingerprints
  std::set<std::pair<std::string, ReduceOp>> logged_;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_COALESCED_ALL_REDUCE_H_
