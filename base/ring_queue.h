#ifndef TESSERA_BASE_RING_QUEUE_H_
#define TESSERA_BASE_RING_QUEUE_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace tessera {

// First in, first out. Allocates only to hold more elements than ever before;
// unlike std::deque, which goes on allocating as elements come and go. T is
// default-constructible and movable. Not thread-safe.
template <typename T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  void Push(T value) {
    if (size_ == slots_.size()) Grow();
    slots_[(first_ + size_) % slots_.size()] = std::move(value);
    ++size_;
  }

  // REQUIRES: !empty().
  T Pop() {
    T value = std::exchange(slots_[first_], T());
    first_ = (first_ + 1) % slots_.size();
    --size_;
    return value;
  }

 private:
  void Grow() {
    std::vector<T> slots(slots_.empty() ? 8 : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) {
      slots[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    }
    slots_ = std::move(slots);
    first_ = 0;
  }

  std::vector<T> slots_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_BASE_RING_QUEUE_H_
