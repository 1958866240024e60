#ifndef TESSERA_TESTS_DBUFFER_HSDP_BUFFERS_H_
#define TESSERA_TESTS_DBUFFER_HSDP_BUFFERS_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/dbuffer/dbuffer.h"

namespace tessera::testing {

using GroupPtr = std::shared_ptr<const BufferGroup>;

inline BufferPlacements Parse(absl::string_view text) {
  return ParseBufferPlacements(text).value();
}

// Over a 2x2 mesh, 256 elements: w in [0,91), scalar in [92,93), v in [96,157).
inline GroupPtr HsdpGroup(BufferGroup::Options options = {.axes = {0, 1},
                                                          .num_flat_axes = 2}) {
  const DeviceMesh mesh = DeviceMesh::Parse("dp_outer=2,dp_inner=2").value();
  return BufferGroup::Create(
             mesh,
             {{"w", Layout::Parse("f32[13,7] [R, R]", mesh).value()},
              {"scalar", Layout::Parse("f32[] [R, R]", mesh).value()},
              {"v", Layout::Parse("f32[61] [R, R]", mesh).value()}},
             std::move(options))
      .value();
}

inline absl::StatusOr<DBuffer> Allocate(const GroupPtr& group,
                                        absl::string_view placements,
                                        LocalRank& rank,
                                        DType dtype = DType::kF32) {
  return DBuffer::Allocate(group, Parse(placements), dtype, rank.rank,
                           rank.device, "buffer", rank.stream);
}

inline absl::Span<float> Floats(const TensorView& view) {
  return absl::MakeSpan(view.as<float>(), view.num_elements());
}

// Different on every rank, in tensors only.
inline void FillTensors(const DBuffer& buffer, float factor) {
  for (int i = 0; i < buffer.group().num_tensors(); ++i) {
    float value = 1;
    for (float& x : Floats(buffer.TensorPiece(i))) x = factor * value++;
  }
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_DBUFFER_HSDP_BUFFERS_H_
