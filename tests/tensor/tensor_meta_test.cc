#include "tessera/tensor/tensor_meta.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hostile_text.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::HostileTexts;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TensorMeta Make(DType dtype, std::vector<int64_t> extents) {
  return TensorMeta::Create(dtype, extents).value();
}

TEST(TensorMetaTest, DefaultsToAScalarF32) {
  EXPECT_EQ(TensorMeta(), Make(DType::kF32, {}));
  EXPECT_EQ(TensorMeta().num_bytes(), 4);
}

TEST(TensorMetaTest, CountsBytes) {
  EXPECT_EQ(Make(DType::kBF16, {4096, 14336}).num_bytes(), 117440512);
  EXPECT_EQ(Make(DType::kF64, {3, 0}).num_bytes(), 0);
}

TEST(TensorMetaTest, RejectsSizesBeyondInt64) {
  EXPECT_EQ(Make(DType::kI64, {kMax / 8}).num_bytes(), kMax / 8 * 8);
  EXPECT_THAT(TensorMeta::Create(DType::kI64, {kMax / 8 + 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("i64[1152921504606846976]")));
  EXPECT_THAT(TensorMeta::Create(DType::kF32, {-1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
}

TEST(TensorMetaTest, TextParsesBack) {
  for (DType dtype : kAllDTypes) {
    for (const TensorMeta& meta :
         {Make(dtype, {}), Make(dtype, {0, 4}), Make(dtype, {4096, 14336})}) {
      EXPECT_THAT(TensorMeta::Parse(meta.ToString()), IsOkAndHolds(meta));
    }
  }
  EXPECT_EQ(Make(DType::kBF16, {4096, 14336}).ToString(), "bf16[4096,14336]");
}

TEST(TensorMetaTest, SurvivesHostileText) {
  constexpr uint32_t kSeed = 2;
  SCOPED_TRACE(kSeed);
  for (const std::string& text :
       HostileTexts({"bf16[4096,14336]", "f32[]"}, kSeed, 3000)) {
    const absl::StatusOr<TensorMeta> meta = TensorMeta::Parse(text);
    if (meta.ok()) {
      EXPECT_THAT(TensorMeta::Parse(meta->ToString()), IsOkAndHolds(*meta));
    } else {
      EXPECT_THAT(meta, StatusIs(absl::StatusCode::kInvalidArgument));
    }
  }
}

TEST(TensorMetaTest, HashesAsItCompares) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {TensorMeta(), Make(DType::kBF16, {}), Make(DType::kF32, {1}),
       Make(DType::kBF16, {2, 3}), Make(DType::kF16, {2, 3})}));
}

}  // namespace
}  // namespace tessera
