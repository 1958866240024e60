#ifndef TESSERA_COMM_NCCL_NCCL_GROUP_H_
#define TESSERA_COMM_NCCL_NCCL_GROUP_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/nccl/nccl_comm.h"
#include "tessera/comm/nccl/nccl_world.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"

namespace tessera::internal {

// What the groups of one NcclWorld share: the GPU, the options, and every
// ncclComm_t until the last group is gone. They are then destroyed in the order
// in which they were made, which is the same on all ranks that share them: NCCL
// may let a rank wait there for others. Thread-safe.
class NcclContext {
 public:
  NcclContext(CudaDevice& device, const NcclWorld::Options& options)
      : device_(device),
        allocator_(dynamic_cast<const NcclAllocator*>(device.allocator())),
        options_(options) {}
  ~NcclContext();

  CudaDevice& device() const { return device_; }
  // The device's, whose blocks groups register; null: it has another one.
  const NcclAllocator* allocator() const { return allocator_; }
  const NcclWorld::Options& options() const { return options_; }

  // Keeps it.
  void Add(std::shared_ptr<NcclComm> comm);
  // OK, or the error of one of them.
  absl::Status Check();

 private:
  CudaDevice& device_;
  const NcclAllocator* const allocator_;
  const NcclWorld::Options options_;
  Mutex mutex_;
  std::vector<std::shared_ptr<NcclComm>> comms_ ABSL_GUARDED_BY(mutex_);
};

// This rank's end of a group: its ncclComm_t, and what members tell each other
// on the host, which goes through that, too, on a stream of its own. A group of
// one rank has neither.
//
// Thread-safe; one call of Issue, HostAllGather, MakeGroup or Partition at a
// time.
class NcclGroup {
 public:
  // Of the ranks `members` of the world, this rank being members[rank]. The id
  // is not looked at where that is the only one. COLLECTIVE over them.
  static absl::StatusOr<std::shared_ptr<NcclGroup>> Create(
      std::shared_ptr<NcclContext> context, const NcclId& id, std::string name,
      std::vector<int> members, int rank);
  // Of all ranks of the caller's ncclComm_t.
  static std::shared_ptr<NcclGroup> Borrow(std::shared_ptr<NcclContext> context,
                                           ncclComm_t comm, std::string name,
                                           int size, int rank);

  const std::shared_ptr<NcclContext>& context() const { return context_; }
  // Null in a group of one.
  const std::shared_ptr<NcclComm>& comm() const { return comm_; }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  // True for the first caller: the group's stream is the caller's.
  bool TakeStream() { return !has_stream_.exchange(true); }
  // Makes failures of the group those of the stream.
  void Watch(CudaStream& stream) const;

  // Enqueues checked calls. REQUIRES: size() > 1.
  absl::Status Issue(CudaStream& stream, absl::Span<const Collective> calls,
                     int64_t sequence);

  // What every member gave, in group order.
  absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view value);
  // A group of those members, indices in this one. COLLECTIVE over them: unless
  // they are all, the first makes an id and sends it to the others.
  absl::StatusOr<std::shared_ptr<NcclGroup>> MakeGroup(
      absl::Span<const int> members, absl::string_view name);
  // The same where all ranks of this group make theirs, by ncclCommSplit; null
  // for no members. COLLECTIVE over this group.
  absl::StatusOr<std::shared_ptr<NcclGroup>> Partition(
      absl::Span<const int> members, absl::string_view name);

  void SetTimeout(std::chrono::milliseconds timeout) const;
  void Abort(absl::string_view reason);

 private:
  NcclGroup(std::shared_ptr<NcclContext> context, std::string name,
            std::vector<int> members, int rank);

  NcclComm::Options CommOptions() const;
  // Of those members of this one, without an ncclComm_t yet.
  std::shared_ptr<NcclGroup> NewGroup(absl::Span<const int> members,
                                      absl::string_view name) const;
  // Joins the ranks with this id, where there are others.
  absl::Status Init(const NcclId& id);
  // An ncclComm_t that may be a blocking one would wait without a timeout.
  bool CanSplit() const { return comm_ != nullptr && comm_->is_owned(); }
  absl::StatusOr<std::shared_ptr<NcclGroup>> Split(
      absl::Span<const int> members, absl::string_view name);
  absl::Status RegisterBlocks(absl::Span<const MemoryRange> memory);
  // The stream of what the host exchanges, made on first use.
  absl::StatusOr<CudaStream*> HostStream();
  // What every member gave, of sizes[i] bytes that member i has given.
  absl::StatusOr<std::string> GatherBytes(absl::string_view value,
                                          absl::Span<const int64_t> sizes);
  absl::StatusOr<NcclId> ShareId(absl::Span<const int> members);

  const std::shared_ptr<NcclContext> context_;
  const std::string name_;
  const std::vector<int> members_;
  const int rank_;
  std::shared_ptr<NcclComm> comm_;  // null in a group of one
  std::atomic<bool> has_stream_ = false;
  std::unique_ptr<Stream> host_stream_;
  int64_t num_host_calls_ = 0;
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_NCCL_NCCL_GROUP_H_
