#include "tessera/fsdp/chunk_plan.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/checked_math.h"

namespace tessera::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ChunkPlanTest, CutsAcrossTensors) {
  EXPECT_THAT(
      PlanChunks({6, 6, 6, 6}, 10),
      ElementsAre(ElementsAre(ChunkPiece{0, {0, 6}}, ChunkPiece{1, {0, 4}}),
                  ElementsAre(ChunkPiece{1, {4, 6}}, ChunkPiece{2, {0, 6}},
                              ChunkPiece{3, {0, 2}}),
                  ElementsAre(ChunkPiece{3, {2, 6}})));
}

TEST(ChunkPlanTest, NothingMakesNoChunk) {
  EXPECT_THAT(PlanChunks({}, 1), IsEmpty());
  EXPECT_THAT(PlanChunks({0, 0}, 1), IsEmpty());
}

TEST(ChunkPlanTest, SizesMayBeHuge) {
  constexpr int64_t kHuge = int64_t{1} << 61;
  EXPECT_THAT(PlanChunks({kHuge, kHuge, kHuge}, INT64_MAX),
              ElementsAre(ElementsAre(ChunkPiece{0, {0, kHuge}},
                                      ChunkPiece{1, {0, kHuge}},
                                      ChunkPiece{2, {0, kHuge}})));
}

// The post-condition.
void CheckChunks(const std::vector<int64_t>& sizes, int64_t chunk_elements) {
  const std::vector<Chunk> chunks = PlanChunks(sizes, chunk_elements);
  int64_t total = 0;
  for (int64_t size : sizes) total += size;
  EXPECT_EQ(chunks.size(), CeilDiv(total, chunk_elements));

  std::vector<ChunkPiece> joined;
  for (size_t k = 0; k < chunks.size(); ++k) {
    int64_t elements = 0;
    for (const ChunkPiece& piece : chunks[k]) {
      EXPECT_GT(piece.elements.size(), 0);
      elements += piece.elements.size();
      if (!joined.empty() && joined.back().tensor == piece.tensor) {
        EXPECT_EQ(joined.back().elements.end, piece.elements.begin);
        joined.back().elements.end = piece.elements.end;
      } else {
        joined.push_back(piece);
      }
    }
    if (k + 1 < chunks.size()) {
      EXPECT_EQ(elements, chunk_elements);
    }
  }
  std::vector<ChunkPiece> wanted;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) wanted.push_back({static_cast<int>(i), {0, sizes[i]}});
  }
  EXPECT_EQ(joined, wanted);
}

TEST(ChunkPlanTest, KeepsItsPostConditionOnAllSmallLists) {
  for (int64_t a = 0; a <= 5; ++a) {
    for (int64_t b = 0; b <= 5; ++b) {
      for (int64_t c = 0; c <= 5; ++c) {
        for (int64_t chunk = 1; chunk <= 16; ++chunk) {
          SCOPED_TRACE(::testing::Message()
                       << a << "," << b << "," << c << " by " << chunk);
          CheckChunks({a, b, c}, chunk);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::internal
