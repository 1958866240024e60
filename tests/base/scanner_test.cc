#include "tessera/base/scanner.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::optional<int> IntIn(absl::string_view text) {
  return Scanner("test", text).ConsumeInt<int>();
}

TEST(ScannerTest, ReadsFromFrontToBackOverWhiteSpace) {
  Scanner scanner("test", " dp = 2 , tp_1=-3\t");
  EXPECT_EQ(scanner.ConsumeName(), "dp");
  EXPECT_TRUE(scanner.Consume("="));
  EXPECT_EQ(scanner.ConsumeInt<int>(), 2);
  EXPECT_TRUE(scanner.Consume(","));
  EXPECT_EQ(scanner.ConsumeName(), "tp_1");
  EXPECT_TRUE(scanner.Consume("="));
  EXPECT_FALSE(scanner.AtEnd());
  EXPECT_EQ(scanner.ConsumeInt<int>(), -3);
  EXPECT_TRUE(scanner.AtEnd());
}

TEST(ScannerTest, StaysWhereItIsWhenNothingIsFound) {
  Scanner scanner("test", "ab12");
  EXPECT_FALSE(scanner.Consume("b"));
  EXPECT_EQ(scanner.ConsumeInt<int>(), std::nullopt);
  EXPECT_EQ(scanner.ConsumeName(), "ab12");
  EXPECT_EQ(scanner.ConsumeName(), "");
}

TEST(ScannerTest, ReadsOnlyNumbersThatFit) {
  EXPECT_EQ(IntIn("2147483647"), std::numeric_limits<int>::max());
  EXPECT_EQ(IntIn("2147483648"), std::nullopt);
  EXPECT_EQ(IntIn("-2147483648"), std::numeric_limits<int>::min());
  EXPECT_EQ(IntIn(std::string(10000, '9')), std::nullopt);
  EXPECT_EQ(Scanner("test", "9223372036854775807").ConsumeInt<int64_t>(),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Scanner("test", "9223372036854775808").ConsumeInt<int64_t>(),
            std::nullopt);
}

TEST(ScannerTest, ReadsNoPlusSignsNorHexadecimal) {
  EXPECT_EQ(IntIn("+1"), std::nullopt);
  EXPECT_EQ(IntIn("- 1"), std::nullopt);
  EXPECT_EQ(IntIn(""), std::nullopt);
  EXPECT_EQ(IntIn("0x10"), 0);
}

TEST(ScannerTest, ErrorSaysWhatWasWantedAndFound) {
  Scanner scanner("mesh", "dp=x");
  scanner.ConsumeName();
  scanner.Consume("=");
  EXPECT_EQ(
      scanner.Error("a size"),
      absl::InvalidArgumentError("mesh: want a size, found 'x' in 'dp=x'"));
  scanner.ConsumeName();
  EXPECT_EQ(
      scanner.Error("','"),
      absl::InvalidArgumentError("mesh: want ',', found the end in 'dp=x'"));
}

TEST(ScannerTest, ErrorIsPrintableAndShortWhateverTheText) {
  const std::string text =
      std::string("\x01\n\xff\0", 4) + std::string(100000, 'x');
  const absl::Status status = Scanner("mesh", text).Error("a size");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(R"(\x01\n\xff\x00xxx)"), HasSubstr("...'"),
                    Not(HasSubstr("\n"))));
  EXPECT_THAT(status.message(), SizeIs(::testing::Lt(300)));
}

TEST(IsNameTest, TakesLettersDigitsAndUnderscores) {
  EXPECT_TRUE(IsName("dp"));
  EXPECT_TRUE(IsName("_Tp2"));
  EXPECT_FALSE(IsName(""));
  EXPECT_FALSE(IsName("2d"));
  EXPECT_FALSE(IsName("a-b"));
  EXPECT_FALSE(IsName("a "));
  EXPECT_FALSE(IsName("\xc3\xa4"));
}

}  // namespace
}  // namespace tessera::internal
