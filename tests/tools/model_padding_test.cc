// How much padding the planner needs for real models, from 8 to 1024 ranks:
// next to none where single elements may be cut, at coarser granules close to
// what it proves to be needed, and never more than simpler planners.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/checked_math.h"
#include "tests/status_matchers.h"
#include "tests/tools/simple_planner.h"
#include "tools/models/built_in.h"
#include "tools/models/model_layout.h"
#include "tools/models/padding_rules.h"

namespace tessera::tools {
namespace {

constexpr int64_t kRanks[] = {8,   12,  16,  24,  32,  48,  64,  96,   128,
                              192, 256, 320, 384, 512, 640, 768, 1000, 1024};

// Tests are called with letters, digits and '_'.
std::string TestName(const std::string& text) {
  return absl::StrReplaceAll(text, {{"-", "_"}, {".", "_"}, {":", "_"}});
}

// In elements: what tensors and parts begin at multiples of.
int64_t TensorAlignOf(const Model& model) { return 16 / SizeOf(model.dtype); }
int64_t PartAlignOf(const Model& model) { return 128 / SizeOf(model.dtype); }

// What FlatLayout promises, by arithmetic: layouts are large.
void ExpectPostConditions(const FlatLayout& layout, const Model& model) {
  const int64_t part = layout.per_rank_elements();
  EXPECT_EQ(part % PartAlignOf(model), 0);
  EXPECT_EQ(layout.num_elements(), layout.ranks() * part);
  int64_t end = 0;
  int64_t elements = 0;
  for (int i : layout.memory_order()) {
    SCOPED_TRACE(layout.tensor(i).name);
    const Interval extent = layout.extent(i);
    EXPECT_EQ(extent.size(), layout.tensor(i).shape.num_elements());
    EXPECT_EQ(extent.begin % TensorAlignOf(model), 0);
    EXPECT_GE(extent.begin, end) << "overlap";
    end = extent.end;
    elements += extent.size();
    const int64_t granule = layout.granule(i);
    for (int64_t b = (extent.begin / part + 1) * part; b < extent.end;
         b += part) {
      ASSERT_EQ((b - extent.begin) % granule, 0) << "a granule is cut at " << b;
    }
  }
  EXPECT_LE(end, layout.num_elements());
  EXPECT_EQ(layout.memory_order().size(),
            static_cast<size_t>(layout.num_tensors()));
  EXPECT_EQ(layout.padding_elements(), layout.num_elements() - elements);
  EXPECT_LE(layout.padding_bound(), layout.padding_elements());
}

class ModelPaddingTest
    : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  const Model model_ = BuiltInModel(std::get<0>(GetParam())).value();
  const Granularity granularity_ =
      Granularity::Parse(std::get<1>(GetParam())).value();
};

// The padding that parts of whole 128 bytes force, in % of the model.
double ForcedPercent(const Model& model, int64_t ranks) {
  std::vector<int64_t> forced;
  for (const Model::Unit& unit : model.units) {
    const int64_t least = CeilDiv(unit.num_elements(), ranks);
    const int64_t part = *CheckedRoundUp(least, PartAlignOf(model));
    forced.push_back(ranks * part - unit.num_elements());
  }
  return PercentOfModel(model, forced);
}

// In points: how far above the bound.
double MostGap(const Model& model, const Granularity& granularity,
               int64_t ranks) {
  // Known to be hard: no better packing of its blocks is found.
  const bool is_exempt = model.name == "qwen3-30b-a3b" &&
                         granularity == *Granularity::Rows(128) && ranks == 128;
  return is_exempt ? 0.67 : 0.5;
}

// In %, where single elements may be cut. The small model has little to share
// among a thousand ranks, each of whom gets 128 bytes of a unit at least.
double MostElementPercent(const Model& model) {
  return model.name == "gpt2-124m" ? 0.26 : 0.05;
}

TEST_P(ModelPaddingTest, KeepsToTheGoals) {
  for (int64_t ranks : kRanks) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    ASSERT_OK_AND_ASSIGN(const std::vector<FlatLayout> layouts,
                         LayoutsOf(model_, ranks, granularity_, model_.dtype));
    for (size_t i = 0; i < layouts.size(); ++i) {
      const Model::Unit& unit = model_.units[i];
      SCOPED_TRACE(unit.name);
      const FlatLayout& layout = layouts[i];
      ExpectPostConditions(layout, model_);
      EXPECT_EQ(
          testing::SimplePartSize(TensorsOf(unit, granularity_), ranks,
                                  model_.dtype, layout.per_rank_elements()),
          std::nullopt);
      const auto megatron =
          MegatronPadding(unit, ranks, granularity_, PartAlignOf(model_));
      if (megatron.ok()) {
        EXPECT_LE(layout.padding_elements(), *megatron);
      }
    }
    const double padding = PaddingPercent(model_, layouts);
    EXPECT_LE(padding - BoundPercent(model_, layouts),
              MostGap(model_, granularity_, ranks));
    if (granularity_ == Granularity::Element()) {
      EXPECT_LE(padding, ForcedPercent(model_, ranks) + 0.01);
      EXPECT_LE(padding, MostElementPercent(model_));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelPaddingTest,
    ::testing::Combine(::testing::ValuesIn(BuiltInModelNames()),
                       ::testing::Values("element", "inner-row", "row",
                                         "rows:16", "rows:32", "rows:128")),
    [](const auto& test) {
      return TestName(
          absl::StrCat(std::get<0>(test.param), "_", std::get<1>(test.param)));
    });

// --- Other rules -------------------------------------------------------------

// Padding in % of the model, on 256 and on 1024 ranks.
struct Figures {
  const char* model;
  const char* megatron[2];
  const char* fsdp2[2];
  const char* simple_row[2];
  const char* simple_inner_row[2];
  const char* simple_element[2];
  friend std::ostream& operator<<(std::ostream& os, const Figures& figures) {
    return os << figures.model;
  }
};

constexpr Figures kFigures[] = {
    {.model = "gpt2-124m",
     .megatron = {"22.76", "23.24"},
     .fsdp2 = {"0.11", "15.77"},
     .simple_row = {"22.77", "23.26"},
     .simple_inner_row = {"22.77", "23.26"},
     .simple_element = {"0.07", "0.25"}},
    {.model = "llama-3.1-8b",
     .megatron = {"0.85", "6.76"},
     .fsdp2 = {"0.00", "0.08"},
     .simple_row = {"0.85", "6.76"},
     .simple_inner_row = {"0.85", "6.76"},
     .simple_element = {"0.00", "0.02"}},
    {.model = "llama-3.1-70b",
     .megatron = {"1.19", "2.87"},
     .fsdp2 = {"0.00", "0.02"},
     .simple_row = {"1.19", "2.87"},
     .simple_inner_row = {"1.19", "2.87"},
     .simple_element = {"0.00", "0.01"}},
    {.model = "deepseek-v3",
     .megatron = {"1.13", "1.24"},
     .fsdp2 = {"0.01", "0.11"},
     .simple_row = {"0.11", "1.24"},
     .simple_inner_row = {"0.11", "1.24"},
     .simple_element = {"0.00", "0.00"}},
    {.model = "gpt-oss-120b",
     .megatron = {"31.85", "424.43"},
     .fsdp2 = {"98.22", "687.45"},
     .simple_row = {"31.85", "424.43"},
     .simple_inner_row = {"0.05", "5.68"},
     .simple_element = {"0.00", "0.00"}},
    {.model = "qwen3-30b-a3b",
     .megatron = {"0.45", "0.96"},
     .fsdp2 = {"0.04", "21.73"},
     .simple_row = {"0.12", "0.96"},
     .simple_inner_row = {"0.12", "0.96"},
     .simple_element = {"0.00", "0.01"}},
};

class OtherRulesTest : public ::testing::TestWithParam<Figures> {
 protected:
  // With two digits, the sum over all units of what padding_of(unit) is.
  template <typename PaddingOf>
  std::string Percent(PaddingOf padding_of) const {
    std::vector<int64_t> padding;
    for (const Model::Unit& unit : model_.units) {
      padding.push_back(padding_of(unit));
    }
    return absl::StrFormat("%.2f", PercentOfModel(model_, padding));
  }

  std::string SimplePercent(int64_t ranks,
                            const Granularity& granularity) const {
    return Percent([&](const Model::Unit& unit) {
      const std::optional<int64_t> part = testing::SimplePartSize(
          TensorsOf(unit, granularity), ranks, model_.dtype, int64_t{1} << 40);
      return ranks * part.value() - unit.num_elements();
    });
  }

  const Model model_ = BuiltInModel(GetParam().model).value();
};

TEST_P(OtherRulesTest, GiveTheKnownFigures) {
  for (int i = 0; i < 2; ++i) {
    const int64_t ranks = i == 0 ? 256 : 1024;
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    EXPECT_EQ(Percent([&](const Model::Unit& unit) {
                return MegatronPadding(unit, ranks).value();
              }),
              GetParam().megatron[i]);
    EXPECT_EQ(Percent([&](const Model::Unit& unit) {
                return Fsdp2Padding(unit, ranks).value();
              }),
              GetParam().fsdp2[i]);
    EXPECT_EQ(SimplePercent(ranks, Granularity::Row()),
              GetParam().simple_row[i]);
    EXPECT_EQ(SimplePercent(ranks, Granularity::InnerRow()),
              GetParam().simple_inner_row[i]);
    EXPECT_EQ(SimplePercent(ranks, Granularity::Element()),
              GetParam().simple_element[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OtherRulesTest, ::testing::ValuesIn(kFigures),
                         [](const auto& test) {
                           return TestName(test.param.model);
                         });

}  // namespace
}  // namespace tessera::tools
