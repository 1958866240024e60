#include "tessera/fsdp/placements.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

UnitPlacements Parse(const char* parameter, const char* gradient,
                     const char* optimizer) {
  return {*ParseBufferPlacements(parameter), *ParseBufferPlacements(gradient),
          *ParseBufferPlacements(optimizer)};
}

TEST(UnitPlacementsTest, StrategiesAreRowsOfATable) {
  struct Row {
    const char* name;
    const char* parameter;
    const char* gradient;
    const char* optimizer;
  };
  const Row rows[] = {
      {"ddp", "[R, R]", "[P, P]", "[R, R]"},
      {"zero1", "[R, R]", "[P, P]", "[Flat, Flat]"},
      {"zero2", "[R, R]", "[Flat, Flat]", "[Flat, Flat]"},
      {"zero3", "[Flat, Flat]", "[Flat, Flat]", "[Flat, Flat]"},
      {"fsdp", "[Flat, Flat]", "[Flat, Flat]", "[Flat, Flat]"},
      {"hsdp", "[R, Flat]", "[P, Flat]", "[R, Flat]"},
      {"hfsdp", "[R, Flat]", "[P, Flat]", "[Flat, Flat]"},
  };
  EXPECT_EQ(StrategyNames().size(), std::size(rows));
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    ASSERT_OK_AND_ASSIGN(UnitPlacements placements, PlacementsFor(row.name, 2));
    EXPECT_EQ(placements, Parse(row.parameter, row.gradient, row.optimizer));
    EXPECT_OK(ValidatePlacements(placements, 2));
  }
}

TEST(UnitPlacementsTest, OuterRuleHoldsForAllAxesButTheLast) {
  ASSERT_OK_AND_ASSIGN(UnitPlacements placements, PlacementsFor("hsdp", 3));
  EXPECT_EQ(placements, Parse("[R, R, Flat]", "[P, P, Flat]", "[R, R, Flat]"));
  ASSERT_OK_AND_ASSIGN(placements, PlacementsFor("hsdp", 1));
  EXPECT_EQ(placements, Parse("[Flat]", "[Flat]", "[Flat]"));
}

TEST(UnitPlacementsTest, NamesKnownStrategiesWhereOneIsUnknown) {
  EXPECT_THAT(PlacementsFor("zero4", 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("zero4"), HasSubstr("hsdp"))));
}

// Every triple on one axis, legal or why not.
TEST(UnitPlacementsTest, ValidatesEveryTripleOnOneAxis) {
  const char* const held[] = {"[R]", "[Flat]", "[P(sum)]"};
  const char* const gradients[] = {"[R]", "[Flat]", "[P(sum)]", "[P(max)]"};
  int legal = 0;
  for (const char* parameter : held) {
    for (const char* gradient : gradients) {
      for (const char* optimizer : held) {
        SCOPED_TRACE(std::string(parameter) + gradient + optimizer);
        const absl::Status status =
            ValidatePlacements(Parse(parameter, gradient, optimizer), 1);
        const std::string g = gradient;
        const std::string o = optimizer;
        const bool want = std::string(parameter) != "[P(sum)]" &&
                          o != "[P(sum)]" && g != "[R]" && g != "[P(max)]" &&
                          !(g == "[Flat]" && o == "[R]");
        EXPECT_EQ(status.ok(), want) << status;
        legal += want;
        if (!status.ok()) {
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("axis 0")));
        }
      }
    }
  }
  EXPECT_EQ(legal, 6);
}

TEST(UnitPlacementsTest, RejectsListsOfAnotherLength) {
  EXPECT_THAT(ValidatePlacements(Parse("[R, R]", "[P]", "[R, R]"), 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("gradient"), HasSubstr("1 entries"),
                             HasSubstr("2 data-parallel axes"))));
}

}  // namespace
}  // namespace tessera
