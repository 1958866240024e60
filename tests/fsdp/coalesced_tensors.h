#ifndef TESSERA_TESTS_FSDP_COALESCED_TENSORS_H_
#define TESSERA_TESTS_FSDP_COALESCED_TENSORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/base/log.h"
#include "tessera/comm/comm_set.h"
#include "tessera/device/cpu/elementwise.h"
#include "tessera/fsdp/coalesced_all_reduce.h"

// What ranks all-reduce together in tests, and what becomes of it.

namespace tessera::testing {

inline constexpr int kRanks = 3;

inline const Logger& NoLogger() {
  static const Logger logger(nullptr, absl::LogSeverity::kInfo);
  return logger;
}

inline DeviceMesh Mesh(absl::string_view text = "tp=3") {
  return DeviceMesh::Parse(text).value();
}

inline absl::StatusOr<CoalescedAllReduce> Coalesced(
    CommSet& comms, int64_t chunk_bytes, absl::string_view mesh = "tp=3") {
  return CoalescedAllReduce::Create(
      Mesh(mesh), comms,
      {.max_chunk_bytes = chunk_bytes, .logger = NoLogger()});
}

// Memory of one dtype for tensors of some sizes: one behind the other, or with
// gaps.
class Tensors {
 public:
  Tensors(DType dtype, const std::vector<int64_t>& sizes, int64_t gap = 1) {
    int64_t elements = 0;
    for (int64_t size : sizes) elements += size + gap;
    bytes_.resize(elements * SizeOf(dtype));
    int64_t begin = 0;
    for (int64_t size : sizes) {
      views_.push_back(
          TensorView::Flat(bytes_.data() + begin * SizeOf(dtype), dtype, size));
      begin += size + gap;
    }
  }
  // What rank `rank` begins with: noise, which does not add up exactly.
  Tensors& Fill(int rank) {
    uint32_t state = 12345 + 977 * rank;
    for (const TensorView& view : views_) {
      for (int64_t i = 0; i < view.num_elements(); ++i) {
        state = state * 1664525 + 1013904223;
        const float value = static_cast<float>(state >> 8) / (1 << 23) - 1.0f;
        FillElements(view.Slice(0, {i, i + 1}),
                     IsFloating(view.dtype()) ? value : value * 1000);
      }
    }
    return *this;
  }
  const std::vector<TensorView>& views() const { return views_; }
  std::vector<CoalescedTensor> list() const {
    return {views_.begin(), views_.end()};
  }
  bool operator==(const Tensors& other) const { return bytes_ == other.bytes_; }

 private:
  std::vector<char> bytes_;
  std::vector<TensorView> views_;
};

// What `op` over all ranks' makes of each tensor, one by one.
inline Tensors Reduced(ReduceOp op, DType dtype,
                       const std::vector<int64_t>& sizes, int64_t gap,
                       int ranks = kRanks) {
  Tensors result(dtype, sizes, gap);
  std::vector<Tensors> given;
  for (int rank = 0; rank < ranks; ++rank) {
    given.push_back(std::move(Tensors(dtype, sizes, gap).Fill(rank)));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<TensorView> sources;
    for (const Tensors& tensors : given) sources.push_back(tensors.views()[i]);
    ReduceElements(op, result.views()[i], sources);
  }
  return result;
}

inline void Append(const Tensors& tensors, std::vector<CoalescedTensor>& list) {
  for (const TensorView& view : tensors.views()) list.emplace_back(view);
}

inline CommCounter AllReduces(CommSet& comms, const std::string& axis = "tp") {
  const CommLog::Counters counters = comms.log().counters();
  const auto found = counters.find({axis, CollectiveKind::kAllReduce});
  return found == counters.end() ? CommCounter() : found->second;
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_FSDP_COALESCED_TENSORS_H_
