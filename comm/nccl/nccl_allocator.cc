#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/base/mutex.h"
#include "tessera/comm/nccl/nccl_world.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 512;
// What is asked of NCCL at once, at least.
constexpr int64_t kBlockBytes = int64_t{64} << 20;

int64_t RoundUp(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

// The point in a stream where memory was freed; none where it was freed at
// once.
class Freed {
 public:
  // Where CUDA has no event to give, waits for the stream.
  explicit Freed(cudaStream_t stream) : stream_(stream) {
    if (cudaEventCreateWithFlags(&event_, cudaEventDisableTiming) !=
            cudaSuccess ||
        cudaEventRecord(event_, stream) != cudaSuccess) {
      cudaStreamSynchronize(stream);
    }
  }
  ~Freed() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Freed(const Freed&) = delete;
  Freed& operator=(const Freed&) = delete;

  // What `stream` is given from now on comes behind it; where that is null,
  // what anybody is. False where CUDA fails.
  bool ComesBefore(cudaStream_t stream) const {
    if (event_ == nullptr || stream == stream_) return true;
    return (stream == nullptr
                ? cudaEventSynchronize(event_)
                : cudaStreamWaitEvent(stream, event_, 0)) == cudaSuccess;
  }

 private:
  const cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

class RealNcclAllocator final : public NcclAllocator {
 public:
  ~RealNcclAllocator() override {
    MutexLock lock(mutex_);
    pieces_.clear();
    for (const auto& [begin, bytes] : blocks_) ncclMemFree(begin);
  }

  void* Allocate(int64_t bytes, void* stream) override;
  void Free(void* data, int64_t bytes, void* stream) override;
  MemoryRange BlockOf(const void* address) const override;

 private:
  // Part of a block. Two neighbours in a block are not both free.
  struct Piece {
    int64_t bytes;
    bool is_free = true;
    // Where that which is free now was freed.
    std::vector<std::shared_ptr<const Freed>> freed = {};
  };
  using Pieces = std::map<char*, Piece>;

  // The smallest that is free and large enough; end() where there is none.
  Pieces::iterator FindFree(int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Pieces::iterator NewBlock(int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Joins a free piece with the one behind it, if that is free and in the same
  // block.
  void JoinWithNext(Pieces::iterator piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  Pieces pieces_ ABSL_GUARDED_BY(mutex_);
  std::map<char*, int64_t> blocks_ ABSL_GUARDED_BY(mutex_);  // and their bytes
};

void* RealNcclAllocator::Allocate(int64_t bytes, void* stream) {
  const int64_t wanted = RoundUp(bytes, kAlignment);
  MutexLock lock(mutex_);
  auto found = FindFree(wanted);
  if (found == pieces_.end()) found = NewBlock(wanted);
  if (found == pieces_.end()) return nullptr;
  auto& [begin, piece] = *found;
  for (const auto& freed : piece.freed) {
    if (!freed->ComesBefore(static_cast<cudaStream_t>(stream))) return nullptr;
  }
  if (piece.bytes > wanted) {
    pieces_[begin + wanted] = {.bytes = piece.bytes - wanted,
                               .freed = piece.freed};
  }
  piece = {.bytes = wanted, .is_free = false};
  return begin;
}

RealNcclAllocator::Pieces::iterator RealNcclAllocator::FindFree(int64_t bytes) {
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    if (!piece->second.is_free || piece->second.bytes < bytes) continue;
    if (best == pieces_.end() || piece->second.bytes < best->second.bytes) {
      best = piece;
    }
  }
  return best;
}

RealNcclAllocator::Pieces::iterator RealNcclAllocator::NewBlock(int64_t bytes) {
  // Where there is no more for a whole block, perhaps for this.
  for (const int64_t size : {std::max(bytes, kBlockBytes), bytes}) {
    void* block = nullptr;
    if (ncclMemAlloc(&block, size) != ncclSuccess) continue;
    auto* const begin = static_cast<char*>(block);
    blocks_[begin] = size;
    return pieces_.emplace(begin, Piece{.bytes = size}).first;
  }
  cudaGetLastError();  // is told by the null, and by nothing else
  return pieces_.end();
}

void RealNcclAllocator::Free(void* data, int64_t, void* stream) {
  std::vector<std::shared_ptr<const Freed>> freed;
  if (stream != nullptr) {
    freed.push_back(
        std::make_shared<const Freed>(static_cast<cudaStream_t>(stream)));
  }
  MutexLock lock(mutex_);
  const auto piece = pieces_.find(static_cast<char*>(data));
  piece->second.is_free = true;
  piece->second.freed = std::move(freed);
  JoinWithNext(piece);
  if (piece != pieces_.begin() && std::prev(piece)->second.is_free) {
    JoinWithNext(std::prev(piece));
  }
}

void RealNcclAllocator::JoinWithNext(Pieces::iterator piece) {
  const auto next = std::next(piece);
  if (next == pieces_.end() || !next->second.is_free ||
      blocks_.contains(next->first)) {
    return;
  }
  piece->second.bytes += next->second.bytes;
  piece->second.freed.insert(piece->second.freed.end(),
                             next->second.freed.begin(),
                             next->second.freed.end());
  pieces_.erase(next);
}

MemoryRange RealNcclAllocator::BlockOf(const void* address) const {
  auto* const at = static_cast<char*>(const_cast<void*>(address));
  MutexLock lock(mutex_);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return {};
  --block;
  if (at >= block->first + block->second) return {};
  return {block->first, block->second};
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclAllocator>> NcclAllocator::Create() {
  return std::make_unique<RealNcclAllocator>();
}

}  // namespace tessera
