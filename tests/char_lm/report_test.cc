#include "char_lm/report.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/fsdp/memory_plan.h"

namespace char_lm {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void ExpectFails(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(message));
}

class LossesTest : public ::testing::Test {
 protected:
  LossesTest() {
    result_.losses = losses_;
    result_.norms = {1.0, 0.5, 0.25};
  }

  absl::Status Check() const {
    return CheckLosses(result_, oracle_, big_, tolerances_);
  }
  std::string Describe() const {
    return DescribeLosses(result_, oracle_, big_, tolerances_);
  }

  const std::vector<double> losses_ = {4.5, 3.25, 2.75};
  TrainResult result_;
  std::vector<double> oracle_ = losses_;
  std::vector<double> big_ = losses_;
  Tolerances tolerances_;
};

TEST_F(LossesTest, PassWhereTheyAreEqual) {
  EXPECT_TRUE(Check().ok()) << Check();
  EXPECT_THAT(Describe(),
              HasSubstr("oracle: bitwise equal; big batch: within 0.0e+00"));
}

TEST_F(LossesTest, FailWhereTheOracleDiffersInTheLastBit) {
  for (size_t step = 0; step < losses_.size(); ++step) {
    for (const double towards : {0.0, kInfinity}) {
      oracle_ = losses_;
      oracle_[step] = std::nextafter(losses_[step], towards);
      ExpectFails(Check(), absl::StrCat("the loss of step ", step, " is "));
      ExpectFails(Check(), "that of the oracle");
      EXPECT_THAT(Describe(), HasSubstr("oracle: DIFFERENT"));
    }
  }
}

TEST_F(LossesTest, FailWhereTheyAreNotFinite) {
  for (const double bad : {kNan, kInfinity}) {
    result_.losses[1] = bad;
    big_[1] = bad;
    ExpectFails(Check(), "that of the oracle 3.25");
    oracle_[1] = bad;
    ExpectFails(Check(), "that of one big batch");
    result_.losses[1] = oracle_[1] = losses_[1];
    ExpectFails(Check(), "that of one big batch");
    big_[1] = losses_[1];
  }
}

TEST_F(LossesTest, MayDifferFromTheBigBatchByRounding) {
  for (const double sign : {-1, 1}) {
    big_[2] = losses_[2] * (1 + sign * 5e-5);
    EXPECT_TRUE(Check().ok()) << Check();
    EXPECT_THAT(Describe(),
                AllOf(HasSubstr("bitwise equal"), HasSubstr("within 5.0e-05")));
    big_[2] = losses_[2] * (1 + sign * 2e-4);
    ExpectFails(Check(), "the loss of step 2 is 2.75, that of one big batch");
  }
}

TEST_F(LossesTest, MayDifferFromTheOracleByRoundingWhereThatIsSaid) {
  tolerances_.oracle = 1e-3;
  oracle_[1] = losses_[1] * (1 + 5e-4);
  EXPECT_TRUE(Check().ok()) << Check();
  EXPECT_THAT(Describe(), HasSubstr("oracle: within 5.0e-04 of it, 1e-03"));
  oracle_[1] = losses_[1] * (1 + 2e-3);
  ExpectFails(Check(), "that of the oracle");
  oracle_[1] = kNan;
  ExpectFails(Check(), "that of the oracle");
}

TEST_F(LossesTest, AreShownWithTheNormOfEachStep) {
  EXPECT_THAT(Describe(), AllOf(ContainsRegex("difference +norm\n"),
                                ContainsRegex(" 1 +3.25000000 .* 0.5000\n")));
}

TEST(TolerancesTest, AreNoneForTheOracleUnlessSumsHaveAnotherOrder) {
  Options options;
  options.mesh = *tessera::DeviceMesh::Parse("dp=2");
  EXPECT_EQ(TolerancesOf(options).oracle, 0);
  EXPECT_EQ(TolerancesOf(options).big_batch, 1e-4);
  options.clip = 1.0;
  EXPECT_EQ(TolerancesOf(options).oracle, 1e-4);
  options.clip.reset();
  options.dtype = tessera::DType::kBF16;
  EXPECT_EQ(TolerancesOf(options).oracle, 0);
  EXPECT_EQ(TolerancesOf(options).big_batch, 2e-2);
  options.mesh = *tessera::DeviceMesh::Parse("dp=2,tp=2");
  EXPECT_EQ(TolerancesOf(options).oracle, 2e-2);
}

// Two ranks whose counted peaks are those of the formula.
class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    const auto planned = tessera::PlanMemory({{.groups = {{
                                                   .elements = 64,
                                                   .parameter_parts = 2,
                                                   .gradient_parts = 2,
                                                   .optimizer_parts = 4,
                                               }}}});
    result_.planned_memory = {planned, planned};
    tessera::MemoryReport report;
    for (const auto& [tag, bytes] : planned) {
      report.by_tag[tag].peak_bytes = bytes;
      report.total.peak_bytes += bytes;
    }
    result_.memory = {report, report};
  }

  TrainResult result_;
};

TEST_F(MemoryTest, PassesWhereTheFormulaHolds) {
  ASSERT_EQ(result_.memory[0].by_tag.size(), 5u);
  EXPECT_TRUE(CheckMemory(result_).ok()) << CheckMemory(result_);
}

TEST_F(MemoryTest, FailsForAByteOfAnyTagOnAnyRank) {
  for (size_t rank = 0; rank < result_.memory.size(); ++rank) {
    for (auto& [tag, usage] : result_.memory[rank].by_tag) {
      for (const int64_t byte : {-1, 1}) {
        usage.peak_bytes += byte;
        ExpectFails(CheckMemory(result_),
                    absl::StrCat("rank ", rank, " holds ", usage.peak_bytes,
                                 " bytes of ", tag, " at its peak"));
        usage.peak_bytes -= byte;
      }
    }
  }
}

TEST_F(MemoryTest, FailsForATagThatIsMissing) {
  result_.memory[1].by_tag.erase(tessera::kMainGradTag);
  ExpectFails(CheckMemory(result_), "rank 1 holds 0 bytes of main_grad");
}

TEST_F(MemoryTest, FailsForATagThatTheFormulaLacks) {
  result_.memory[1].by_tag["scratch"].peak_bytes = 8;
  ExpectFails(CheckMemory(result_),
              "rank 1 holds 8 bytes of scratch at its peak, the formula "
              "gives 0");
}

TEST_F(MemoryTest, WorkspaceMayBeInTheTotalAndIsNotInTheFormula) {
  for (const char* tag : {"workspace", "coalesced_chunk"}) {
    tessera::MemoryReport& report = result_.memory[1];
    report.by_tag[tag].peak_bytes = 8;
    for (const int64_t more : {0, 8}) {
      report.total.peak_bytes += more;
      EXPECT_TRUE(CheckMemory(result_).ok()) << CheckMemory(result_);
      ++report.total.peak_bytes;
      if (more == 8) ExpectFails(CheckMemory(result_), "rank 1 holds");
      report.total.peak_bytes -= more + 1;
    }
    report.by_tag.erase(tag);
  }
}

TEST_F(MemoryTest, FailsForADifferentTotal) {
  for (const int64_t byte : {-1, 1}) {
    result_.memory[1].total.peak_bytes += byte;
    ExpectFails(
        CheckMemory(result_),
        absl::StrCat("rank 1 holds ", result_.memory[1].total.peak_bytes,
                     " bytes at its peak"));
    result_.memory[1].total.peak_bytes -= byte;
  }
}

TEST(SideBySideTest, ListsWhatEitherHas) {
  TrainResult hsdp;
  hsdp.communication[{"outer", tessera::CollectiveKind::kAllReduce}] = {1, 96};
  TrainResult hfsdp;
  hfsdp.communication[{"outer", tessera::CollectiveKind::kAllGather}] = {1, 48};
  hsdp.planned_memory = {{{"main_weight", 128}}};
  hfsdp.planned_memory = {{{"main_weight", 64}}};
  EXPECT_THAT(DescribeSideBySide({"hsdp", hsdp}, {"hfsdp", hfsdp}),
              AllOf(HasSubstr("== hsdp against hfsdp =="),
                    ContainsRegex("main_weight +128 +64\n"),
                    ContainsRegex("outer all_reduce +96 +0\n"),
                    ContainsRegex("outer all_gather +0 +48\n"),
                    ContainsRegex("total +128 +64\n"),
                    ContainsRegex("total +96 +48\n")));
}

}  // namespace
}  // namespace char_lm
