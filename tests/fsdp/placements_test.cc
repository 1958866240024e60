#include "tessera/fsdp/placements.h"

#include <string>
#include <utility>
#include <vector>

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
    EXPECT_OK(
        ValidatePlacements(placements, {"outer", "inner"}, {"inner", "outer"}));
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

TEST(UnitPlacementsTest, TextFormsAreReadBack) {
  for (absl::string_view name : StrategyNames()) {
    ASSERT_OK_AND_ASSIGN(const UnitPlacements placements,
                         PlacementsFor(name, 3));
    ASSERT_OK_AND_ASSIGN(const UnitPlacements parsed,
                         ParseUnitPlacements(placements.ToString()));
    EXPECT_EQ(parsed, placements);
  }
  ASSERT_OK_AND_ASSIGN(
      const UnitPlacements parsed,
      ParseUnitPlacements("param=[R,Flat]grad=[P,Flat]  optim=[Flat,Flat] "));
  EXPECT_EQ(parsed, Parse("[R, Flat]", "[P, Flat]", "[Flat, Flat]"));
}

TEST(UnitPlacementsTest, QuotesWhatDoesNotParse) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "'' where 'param=[...]'"},
      {"[R]", "'[R]' where 'param=[...]'"},
      {"param=[R] optim=[R]", "'optim=[R]' where 'grad=[...]'"},
      {"param=[R] grad=[P] optim=", "'optim=' where 'optim=[...]'"},
      {"param=[R] grad=[Q] optim=[R]", "Q"},
      {"param=[R] grad=[P] optim=[R] x", "'x' behind"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(
        ParseUnitPlacements(c.text),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

TEST(UnitPlacementsTest, RejectsListsOfAnotherLength) {
  EXPECT_THAT(ValidatePlacements(Parse("[R, R]", "[P]", "[R, R]"),
                                 {"outer", "inner"}, {"inner", "outer"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("gradient"), HasSubstr("1 entries"),
                             HasSubstr("[outer,inner]"))));
}

// The rules of ValidatePlacements for one list, by other means: `kinds` are
// the placements in cut order.
bool IsLegalList(const BufferPlacements& list, BufferPlacement other,
                 absl::Span<const int> cut_order) {
  bool flat_may_follow = true;
  for (int i : cut_order) {
    if (list[i].is_flat()) {
      if (!flat_may_follow) return false;
    } else if (list[i] == other) {
      flat_may_follow = false;
    } else {
      return false;
    }
  }
  return true;
}

// All lists of R, Flat, P(sum) and P(max) on `num_axes` axes.
std::vector<BufferPlacements> AllLists(int num_axes) {
  std::vector<BufferPlacements> lists = {{}};
  for (int i = 0; i < num_axes; ++i) {
    std::vector<BufferPlacements> longer;
    for (const BufferPlacements& list : lists) {
      for (const BufferPlacement& placement :
           {BufferPlacement::Replicate(), BufferPlacement::Flat(),
            BufferPlacement::Partial(),
            BufferPlacement::Partial(ReduceOp::kMax)}) {
        longer.push_back(list);
        longer.back().push_back(placement);
      }
    }
    lists = std::move(longer);
  }
  return lists;
}

int CountLegalTriples(const std::vector<std::string>& axes,
                      const std::vector<int>& cut_order) {
  std::vector<std::string> cut_names;
  for (int axis : cut_order) cut_names.push_back(axes[axis]);
  const int num_axes = static_cast<int>(axes.size());
  const std::vector<BufferPlacements> lists = AllLists(num_axes);
  int legal = 0;
  for (const BufferPlacements& parameter : lists) {
    for (const BufferPlacements& gradient : lists) {
      for (const BufferPlacements& optimizer : lists) {
        const auto replicate = BufferPlacement::Replicate();
        bool want =
            IsLegalList(parameter, replicate, cut_order) &&
            IsLegalList(gradient, BufferPlacement::Partial(), cut_order) &&
            IsLegalList(optimizer, replicate, cut_order);
        for (int i = 0; i < num_axes; ++i) {
          want = want && (!gradient[i].is_flat() || optimizer[i].is_flat());
        }
        const UnitPlacements triple = {parameter, gradient, optimizer};
        const absl::Status status = ValidatePlacements(triple, axes, cut_names);
        EXPECT_EQ(status.ok(), want) << triple.ToString() << " " << status;
        legal += want;
        if (status.ok()) continue;
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("on axis '")));
      }
    }
  }
  return legal;
}

TEST(UnitPlacementsTest, ValidatesEveryTriple) {
  EXPECT_EQ(CountLegalTriples({"dp"}, {0}), 6);
  EXPECT_EQ(CountLegalTriples({"outer", "inner"}, {1, 0}), 18);
  EXPECT_EQ(CountLegalTriples({"outer", "inner"}, {0, 1}), 18);
  EXPECT_EQ(CountLegalTriples({"a", "b", "c"}, {1, 2, 0}), 40);
}

TEST(UnitPlacementsTest, ErrorsNameListAxisAndCutOrder) {
  EXPECT_THAT(
      ValidatePlacements(Parse("[R, R]", "[P, P]", "[Flat, R]"),
                         {"outer", "inner"}, {"inner", "outer"}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "fsdp: optimizer placements [Flat, R] have Flat on axis "
               "'outer', want Flat only where 'inner' is, which cuts before it "
               "in the order inner,outer"));
}

}  // namespace
}  // namespace tessera
