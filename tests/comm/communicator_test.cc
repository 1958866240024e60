#include "tessera/comm/communicator.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Records what gets past the checks.
class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(std::vector<int> members, int rank, Stream& stream)
      : Communicator(std::move(members), rank, "dp", stream,
                     std::make_shared<CommLog>()) {}

  absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view) override {
    return gathered;
  }
  void Abort(const absl::Status&) override {}

  std::vector<std::string> gathered;  // what HostAllGather answers
  std::vector<std::string> enqueued;  // "sequence signature"
  std::vector<int> subgroup;          // the last one's members

 private:
  absl::Status Enqueue(absl::Span<const Collective> calls,
                       int64_t sequence) override {
    std::string text = std::to_string(sequence);
    for (const Collective& call : calls) text += " " + call.Signature();
    enqueued.push_back(text);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeSubgroup(
      absl::Span<const int> members, absl::string_view, Stream&) override {
    subgroup.assign(members.begin(), members.end());
    return nullptr;
  }
};

class CommunicatorTest : public ::testing::Test {
 protected:
  TensorView View(absl::string_view meta, int64_t offset = 0) {
    return TensorView(&memory[offset], TensorMeta::Parse(meta).value());
  }

  CpuDevice device;
  const std::unique_ptr<Stream> stream = device.NewStream("compute").value();
  std::array<float, 64> memory = {};
  // Rank 6 of the world, second of three.
  FakeCommunicator three{{4, 6, 9}, 1, *stream};
  FakeCommunicator alone{{6}, 0, *stream};
};

auto IsInvalid(const std::string& message) {
  return StatusIs(absl::StatusCode::kInvalidArgument, message);
}

ExtentSplit Sizes(absl::Span<const int64_t> sizes) {
  return ExtentSplit::Explicit(sizes).value();
}

TEST_F(CommunicatorTest, RejectsCallsThatDoNotFit) {
  EXPECT_THAT(
      three.AllReduce(ReduceOp::kSum, View("f32[4]"), View("f32[2,2]")),
      IsInvalid("comm: all_reduce of 'dp' on rank 6: recv is f32[2,2], want "
                "f32[4] as send"));
  EXPECT_THAT(three.AllReduce(ReduceOp::kAvg, View("i32[4]"), View("i32[4]")),
              IsInvalid("comm: all_reduce of 'dp' on rank 6: avg wants a "
                        "floating dtype, found i32"));
  EXPECT_THAT(
      three.ReduceScatter(ReduceOp::kAvg, View("i64[3]"), View("i64[1]")),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("avg")));
  EXPECT_THAT(
      three.ReduceScatter(ReduceOp::kSum, View("f32[4]"), View("f32[1]")),
      IsInvalid("comm: reduce_scatter of 'dp' on rank 6: recv is f32[1], want "
                "f32[2] as this rank's piece of send"));
  EXPECT_THAT(
      three.ReduceScatter(ReduceOp::kSum, View("f32[4]"), View("f32[1]"), 1),
      IsInvalid("comm: reduce_scatter of 'dp' on rank 6: dim 1 is out of "
                "range for send f32[4]"));
  EXPECT_THAT(three.AllGather(View("f32[]"), View("f32[]")),
              IsInvalid("comm: all_gather of 'dp' on rank 6: dim 0 is out of "
                        "range for recv f32[]"));
  EXPECT_THAT(three.AllGather(View("f32[1]"), View("f32[3]"), -1),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      three.AllGather(View("f32[1]"), View("f32[3]"), 0, Sizes({1, 2})),
      IsInvalid("comm: all_gather of 'dp' on rank 6: split (1,2) does not "
                "divide dim 0 of recv f32[3] over 3 ranks"));
  EXPECT_THAT(three.AllGather(View("f64[1]"), View("f32[3]")),
              IsInvalid("comm: all_gather of 'dp' on rank 6: send is f64[1], "
                        "want f32[1] as this rank's piece of recv"));
  EXPECT_THAT(three.AllToAll(View("f32[3]"), 0, {}, View("f32[6]"), 0, {}),
              IsInvalid("comm: all_to_all of 'dp' on rank 6: this rank's "
                        "piece of recv is f32[2], want f32[1] as this rank's "
                        "piece of send"));
  EXPECT_THAT(three.AllToAll(View("f32[3]"), 1, {}, View("f32[3]"), 0, {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(three.AllToAll(View("f32[3]"), 0, {}, View("f32[3]"), 0,
                             Sizes({1, 1, 2})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(three.Broadcast(View("f32[3]"), 3),
              IsInvalid("comm: broadcast of 'dp' on rank 6: root 3 is not in "
                        "a group of 3"));
  EXPECT_THAT(three.SendRecv({{-1, View("f32[3]")}}, {}),
              IsInvalid("comm: send_recv of 'dp' on rank 6: peer -1 is not in "
                        "a group of 3"));
  EXPECT_THAT(three.SendRecv({}, {{3, View("f32[3]")}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(three.SendRecv({{1, View("f32[3]")}}, {}),
              IsInvalid("comm: send_recv of 'dp' on rank 6: this rank sends "
                        "itself 1 messages and receives 0"));
  EXPECT_THAT(
      three.SendRecv({{1, View("f32[3]")}}, {{1, View("f32[4]")}}),
      IsInvalid("comm: send_recv of 'dp' on rank 6: receive 0 is f32[4], want "
                "f32[3] as this rank sends itself"));
  EXPECT_THAT(three.enqueued, IsEmpty());
  EXPECT_THAT(three.log()->counters(), IsEmpty());
}

Collective AllReduceOf(ReduceOp op, const TensorView& view) {
  Collective call;
  call.kind = CollectiveKind::kAllReduce;
  call.op = op;
  call.send = view;
  call.recv = view;
  return call;
}

TEST_F(CommunicatorTest, IssuesSeveralCallsAsOneLaunch) {
  const Collective sum = AllReduceOf(ReduceOp::kSum, View("f32[4]"));
  const Collective max = AllReduceOf(ReduceOp::kMax, View("f32[2]", 4));
  EXPECT_OK(three.Issue({sum, max}));
  EXPECT_OK(three.Issue(absl::Span<const Collective>()));
  EXPECT_OK(three.Issue(max));
  EXPECT_THAT(three.enqueued,
              ElementsAre("0 all_reduce sum f32[4] all_reduce max f32[2]",
                          "1 all_reduce max f32[2]"));
  std::vector<std::string> records;
  for (const CollectiveRecord& record : three.log()->recent()) {
    records.push_back(record.ToString());
  }
  EXPECT_THAT(records, ElementsAre("dp #0 all_reduce sum f32 4",
                                   "dp #0 all_reduce max f32 2",
                                   "dp #1 all_reduce max f32 2"));
}

TEST_F(CommunicatorTest, IssuesNoneOfSeveralCallsWhereOneDoesNotFit) {
  const Collective sum = AllReduceOf(ReduceOp::kSum, View("f32[4]"));
  const Collective bad = AllReduceOf(ReduceOp::kAvg, View("i32[2]"));
  EXPECT_THAT(three.Issue({sum, bad}),
              IsInvalid("comm: all_reduce of 'dp' on rank 6: avg wants a "
                        "floating dtype, found i32"));
  EXPECT_THAT(three.enqueued, IsEmpty());
  EXPECT_THAT(three.log()->counters(), IsEmpty());
}

TEST_F(CommunicatorTest, NumbersAndLogsWhatItEnqueues) {
  EXPECT_OK(three.AllReduce(ReduceOp::kMax, View("f32[4]"), View("f32[4]")));
  EXPECT_EQ(three.Broadcast(View("f32[4]"), 7).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_OK(three.Barrier());
  EXPECT_OK(three.ReduceScatter(ReduceOp::kAvg, View("f32[2,5]"),
                                View("f32[2,2]"), 1));
  EXPECT_OK(
      three.AllGather(View("bf16[3]"), View("bf16[4]"), 0, Sizes({1, 3, 0})));
  EXPECT_OK(three.AllToAll(View("f32[3]"), 0, {}, View("f32[3]"), 0, {}));
  EXPECT_OK(three.Broadcast(View("f32[4]"), 0));
  EXPECT_OK(three.SendRecv({{0, View("i32[5]")}, {2, View("i32[2]")}},
                           {{2, View("i32[6]")}}));
  EXPECT_OK(three.SendRecv({}, {}));
  EXPECT_THAT(three.enqueued,
              ElementsAre("0 all_reduce max f32[4]", "1 barrier",
                          "2 reduce_scatter avg f32[2,5] dim 1 split ceil",
                          "3 all_gather bf16[4] dim 0 split (1,3,0)",
                          "4 all_to_all f32", "5 broadcast f32[4] root 0",
                          "6 send_recv", "7 send_recv"));

  std::vector<std::string> records;
  for (const CollectiveRecord& record : three.log()->recent()) {
    records.push_back(record.ToString());
    EXPECT_EQ(record.group_size, 3);
  }
  EXPECT_THAT(
      records,
      ElementsAre("dp #0 all_reduce max f32 4",
                  "dp #2 reduce_scatter avg f32 10", "dp #3 all_gather bf16 4",
                  "dp #4 all_to_all f32 3", "dp #5 broadcast f32 4",
                  "dp #6 send_recv i32 7", "dp #7 send_recv f32 0"));
  const auto key = [](CollectiveKind kind) { return CommLog::Key("dp", kind); };
  EXPECT_THAT(
      three.log()->counters(),
      ElementsAre(
          // Its 2 of 2+2+0 elements from two peers, then the other 2.
          Pair(key(CollectiveKind::kAllReduce),
               CommCounter{1, 4 * (2 * 2 + 2)}),
          Pair(key(CollectiveKind::kReduceScatter), CommCounter{1, 4 * 4 * 2}),
          Pair(key(CollectiveKind::kAllGather), CommCounter{1, 2 * 1}),
          Pair(key(CollectiveKind::kAllToAll), CommCounter{1, 4 * 2}),
          Pair(key(CollectiveKind::kBroadcast), CommCounter{1, 16}),
          Pair(key(CollectiveKind::kSendRecv), CommCounter{2, 4 * 6})));
}

TEST_F(CommunicatorTest, GroupOfOneCopiesAndLogsNothing) {
  const TensorView from = View("f32[2]");
  int64_t to = 2;
  const auto next = [&] { return View("f32[2]", to += 2); };
  memory[0] = 1.5f;
  memory[1] = -2.0f;
  EXPECT_OK(alone.AllReduce(ReduceOp::kAvg, from, next()));
  EXPECT_OK(alone.ReduceScatter(ReduceOp::kSum, from, next()));
  EXPECT_OK(alone.AllGather(from, next()));
  EXPECT_OK(alone.AllToAll(from, 0, {}, next(), 0, {}));
  EXPECT_OK(alone.SendRecv({{0, from}, {0, from}}, {{0, next()}, {0, next()}}));
  for (int64_t i = 4; i <= to; i += 2) {
    EXPECT_EQ(memory[i], 1.5f) << i;
    EXPECT_EQ(memory[i + 1], -2.0f) << i;
  }
  EXPECT_OK(alone.AllReduce(ReduceOp::kSum, from, from));
  EXPECT_OK(alone.Broadcast(from, 0));
  EXPECT_OK(alone.Barrier());
  EXPECT_EQ(alone.AllReduce(ReduceOp::kSum, from, View("f32[3]")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(alone.enqueued, IsEmpty());
  EXPECT_THAT(alone.log()->recent(), IsEmpty());
}

TEST_F(CommunicatorTest, SubgroupChecksItsMembers) {
  const auto error = [&](const std::vector<int>& members) {
    return three.Subgroup(members, "tp", *stream).status();
  };
  EXPECT_THAT(error({1, 3}),
              IsInvalid("comm: subgroup 'tp' (1,3) of 'dp' on its rank 1: "
                        "member 3 is not in a group of 3"));
  EXPECT_THAT(error({1, 0, 1}), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("member 1 repeats")));
  EXPECT_THAT(error({0, 2}), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("this rank is not a member")));
  EXPECT_OK(error({2, 1}));
  EXPECT_THAT(three.subgroup, ElementsAre(2, 1));
}

TEST_F(CommunicatorTest, PartitionTakesRanksWithoutMembers) {
  EXPECT_THAT(three.Partition({0, 2}, "tp", *stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("this rank is not a member")));
  EXPECT_OK(three.Partition({2, 1}, "tp", *stream));
  EXPECT_THAT(three.subgroup, ElementsAre(2, 1));
  three.subgroup = {};
  const auto none = three.Partition({}, "tp", *stream);
  ASSERT_OK(none);
  EXPECT_EQ(*none, nullptr);
  EXPECT_THAT(three.subgroup, IsEmpty());
}

TEST_F(CommunicatorTest, SplitOrdersAColorByKeyThenRank) {
  three.gathered = {"5 1", "5 0", "5 0"};
  EXPECT_OK(three.Split(5, 0, "tp", *stream).status());
  EXPECT_THAT(three.subgroup, ElementsAre(1, 2, 0));
  three.gathered = {"5 1", "6 -3", "5 0"};
  EXPECT_OK(three.Split(6, -3, "tp", *stream).status());
  EXPECT_THAT(three.subgroup, ElementsAre(1));
}

TEST_F(CommunicatorTest, SplitGivesNoGroupForANegativeColor) {
  three.gathered = {"5 1", "-1 0", "-1 0"};
  const auto group = three.Split(-1, 0, "tp", *stream);
  ASSERT_OK(group);
  EXPECT_EQ(*group, nullptr);
  EXPECT_THAT(three.subgroup, IsEmpty());
}

// What a broadcast sends is what it writes elsewhere.
TEST_F(CommunicatorTest, RejectsBroadcastsFromOtherMemory) {
  Collective call;
  call.kind = CollectiveKind::kBroadcast;
  float values[2] = {};
  call.send = TensorView::Flat(&values[0], DType::kF32, 1);
  call.recv = TensorView::Flat(&values[1], DType::kF32, 1);
  EXPECT_THAT(three.Issue(call),
              IsInvalid("comm: broadcast of 'dp' on rank 6: want send and recv "
                        "the same memory"));
  call.send = TensorView::Flat(&values[0], DType::kF32, 1);
  call.recv = TensorView::Flat(&values[0], DType::kF32, 2);
  EXPECT_THAT(three.Issue(call), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace tessera
