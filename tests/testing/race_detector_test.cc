#include "tessera/testing/race_detector.h"

#include <cstddef>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A device with the streams a, b and c, and 1024 bytes of 'grad'.
class RaceDetectorTest : public ::testing::Test {
 protected:
  RaceDetectorTest() { detector_.Allocate(memory(), 1024, "grad"); }

  const std::byte* memory() const { return &world_[1024]; }
  MemoryRange Bytes(int64_t begin, int64_t end) const {
    return {memory() + begin, end - begin};
  }
  void Read(int stream, const MemoryRange& range) {
    detector_.Launch(stream, "read", {range}, {});
  }
  void Write(int stream, const MemoryRange& range) {
    detector_.Launch(stream, "write", {}, {range});
  }
  // `waiter` waits for all that `stream` was given.
  bool Wait(int waiter, int stream) {
    const StreamOrder::Point point = detector_.Record(stream);
    return detector_.Wait(waiter, &point);
  }
  const std::vector<std::string>& problems() const {
    return detector_.problems();
  }

  const std::vector<std::byte> world_ = std::vector<std::byte>(4096);
  RaceDetector detector_{{.device = "rank 7"}};
  const int a_ = detector_.AddStream("a");
  const int b_ = detector_.AddStream("b");
  const int c_ = detector_.AddStream("c");
};

TEST_F(RaceDetectorTest, FindsTwoWrites) {
  Write(a_, Bytes(0, 64));
  Write(b_, Bytes(32, 96));
  EXPECT_THAT(problems(),
              ElementsAre("rank 7: write #1 on 'b' writes bytes [32,96) of "
                          "'grad' (allocation 0), not ordered after write #1 "
                          "on 'a', which writes bytes [0,64)"));
}

TEST_F(RaceDetectorTest, FindsAReadAndAWriteInEitherOrder) {
  Write(a_, Bytes(0, 64));
  Read(b_, Bytes(0, 64));
  ASSERT_THAT(problems(), SizeIs(1));
  Read(a_, Bytes(128, 192));
  Write(b_, Bytes(128, 192));
  EXPECT_THAT(problems(),
              ElementsAre(AllOf(HasSubstr("read #1 on 'b' reads"),
                                HasSubstr("write #1 on 'a', which writes")),
                          AllOf(HasSubstr("write #2 on 'b' writes"),
                                HasSubstr("read #2 on 'a', which reads"))));
}

TEST_F(RaceDetectorTest, AllowsReadsSideBySide) {
  Read(a_, Bytes(0, 64));
  Read(b_, Bytes(0, 64));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, AllowsWritesSideBySideToOtherBytes) {
  Write(a_, Bytes(0, 64));
  Write(b_, Bytes(64, 128));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, OneStreamIsAnOrder) {
  Write(a_, Bytes(0, 64));
  Read(a_, Bytes(0, 64));
  Write(a_, Bytes(0, 64));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, AnEventOrdersWhatComesBeforeIt) {
  Write(a_, Bytes(0, 64));
  const StreamOrder::Point point = detector_.Record(a_);
  Write(a_, Bytes(64, 128));
  detector_.Wait(b_, &point);
  Write(b_, Bytes(0, 64));
  EXPECT_THAT(problems(), IsEmpty());
  Write(b_, Bytes(64, 128));
  EXPECT_THAT(problems(), SizeIs(1));
}

TEST_F(RaceDetectorTest, EventsOrderOverAThirdStream) {
  Write(a_, Bytes(0, 64));
  Wait(b_, a_);
  Wait(c_, b_);  // nothing was launched on b
  Write(c_, Bytes(0, 64));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, TheHostOrdersWhatItEnqueuesAfterItHasWaited) {
  Write(a_, Bytes(0, 64));
  Write(a_, Bytes(64, 128));
  detector_.SynchronizeHost(detector_.Record(a_));
  Write(b_, Bytes(0, 64));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, TheHostDoesNotOrderWhatItEnqueuedBefore) {
  Write(a_, Bytes(0, 64));
  const StreamOrder::Point point = detector_.Record(a_);
  Write(b_, Bytes(0, 64));
  detector_.SynchronizeHost(point);
  EXPECT_THAT(problems(), SizeIs(1));
}

TEST_F(RaceDetectorTest, ForgetsNoAccessThatLaterOnesMayConflictWith) {
  Write(a_, Bytes(0, 256));
  Write(a_, Bytes(64, 128));  // within the first
  Write(b_, Bytes(0, 64));
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("write #1 on 'a'")));
  Read(c_, Bytes(512, 576));
  Read(c_, Bytes(512, 576));
  Write(a_, Bytes(512, 576));
  EXPECT_THAT(problems(), SizeIs(2));
  Write(a_, Bytes(768, 832));
  Read(a_, Bytes(768, 832));
  Read(b_, Bytes(768, 832));
  EXPECT_THAT(problems(), SizeIs(3));
}

TEST_F(RaceDetectorTest, TakesStridedViewsFromFirstToLastElement) {
  // Columns 0 and 1 of [4, 16] f32.
  std::vector<float> values(64);
  const TensorView whole(values.data(),
                         *TensorMeta::Create(DType::kF32, {4, 16}));
  detector_.Launch(a_, "write", {}, {whole.Slice(1, {0, 1})});
  detector_.Launch(b_, "write", {}, {whole.Slice(1, {1, 2})});
  EXPECT_THAT(problems(),
              ElementsAre(AllOf(HasSubstr("of the caller's memory"))));
}

TEST_F(RaceDetectorTest, FindsUseAfterFree) {
  Write(a_, Bytes(0, 64));
  detector_.FreeOnStream(memory(), a_);
  EXPECT_THAT(problems(), IsEmpty());
  Read(a_, Bytes(0, 64));
  EXPECT_THAT(problems(),
              ElementsAre("rank 7: read #3 on 'a' reads bytes [0,64) of 'grad' "
                          "(allocation 0), which free #2 on 'a' has freed"));
}

TEST_F(RaceDetectorTest, FindsAFreeThatIsNotOrderedAfterTheLastUse) {
  Read(a_, Bytes(0, 64));
  detector_.FreeOnStream(memory(), b_);
  EXPECT_THAT(problems(),
              ElementsAre(AllOf(HasSubstr("free #1 on 'b' writes"),
                                HasSubstr("not ordered after read #1"))));
}

TEST_F(RaceDetectorTest, AnEventOrdersAFree) {
  Read(a_, Bytes(0, 64));
  Wait(b_, a_);
  detector_.FreeOnStream(memory(), b_);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, FindsAFreeOnTheHostThatHasNotWaited) {
  Read(a_, Bytes(0, 64));
  detector_.FreeOnHost(memory());
  EXPECT_THAT(problems(),
              ElementsAre(AllOf(HasSubstr("the host frees 'grad'"),
                                HasSubstr("not ordered after read #1 on 'a', "
                                          "which reads bytes [0,64)"))));
}

TEST_F(RaceDetectorTest, AllowsAFreeOnTheHostThatHasWaited) {
  Read(a_, Bytes(0, 64));
  detector_.SynchronizeHost(detector_.Record(a_));
  detector_.FreeOnHost(memory());
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, FindsASecondFreeAndAFreeOfNothing) {
  detector_.FreeOnHost(memory());
  detector_.FreeOnStream(memory(), a_);
  detector_.FreeOnHost(memory() + 64);
  EXPECT_THAT(problems(),
              ElementsAre(AllOf(HasSubstr("free #1 on 'a' frees 'grad'"),
                                HasSubstr("which the host has freed")),
                          HasSubstr("the host frees memory that was never")));
}

TEST_F(RaceDetectorTest, FindsAccessesThatBeginBesideOrReachOutOfMemory) {
  Read(a_, Bytes(1000, 1032));
  Read(a_, Bytes(1024, 1028));
  Read(a_, Bytes(-4, 4));
  EXPECT_THAT(problems(),
              ElementsAre(HasSubstr("bytes [1000,1032) of 'grad'"),
                          HasSubstr("bytes [1024,1028) of 'grad'"),
                          HasSubstr("bytes [-4,4) of 'grad' (allocation 0), "
                                    "which has 1024")));
}

TEST_F(RaceDetectorTest, AllowsTheCallersMemoryAndNothing) {
  Read(a_, Bytes(-512, -256));
  Read(a_, {memory() + 1024, 0});
  Read(a_, {nullptr, 0});
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RaceDetectorTest, ListsWaitsAndWhatTheyAreFor) {
  Write(a_, Bytes(0, 64));
  Wait(b_, a_);
  Read(b_, Bytes(0, 64));
  ASSERT_THAT(detector_.Waits(), SizeIs(1));
  const StreamWait wait = detector_.Waits()[0];
  EXPECT_EQ(wait.stream, "b");
  EXPECT_EQ(wait.recorded_on, "a");
  EXPECT_EQ(wait.before, "write #1");
  EXPECT_EQ(wait.after, "read #1");
  EXPECT_FALSE(wait.redundant);
}

// Which waits are redundant, in order.
std::vector<bool> Redundant(const RaceDetector& detector) {
  std::vector<bool> redundant;
  for (const StreamWait& wait : detector.Waits()) {
    redundant.push_back(wait.redundant);
  }
  return redundant;
}

TEST_F(RaceDetectorTest, KnowsWaitsThatOtherOrderImplies) {
  Write(a_, Bytes(0, 64));
  detector_.Wait(b_, nullptr);  // has passed
  Wait(b_, a_);
  Read(b_, Bytes(0, 64));
  Wait(b_, a_);  // again
  Wait(c_, b_);
  Read(c_, Bytes(0, 64));
  Wait(c_, a_);  // behind b
  Read(c_, Bytes(0, 64));
  Write(a_, Bytes(64, 128));
  detector_.SynchronizeHost(detector_.Record(a_));
  Wait(c_, a_);  // so has the host
  Read(c_, Bytes(64, 128));
  EXPECT_THAT(Redundant(detector_),
              ElementsAre(true, false, true, false, true, true));
}

TEST_F(RaceDetectorTest, EitherOfTwoEqualWaitsIsRedundant) {
  Write(a_, Bytes(0, 64));
  Wait(b_, a_);
  Wait(b_, a_);
  Read(b_, Bytes(0, 64));
  EXPECT_THAT(Redundant(detector_), ElementsAre(true, true));
}

TEST(RaceDetectorOptionsTest, DropsAWait) {
  RaceDetector detector({.drop_wait = 1});
  const int a = detector.AddStream("a");
  const int b = detector.AddStream("b");
  const char bytes[64] = {};
  const auto wait = [&] {
    const StreamOrder::Point point = detector.Record(a);
    return detector.Wait(b, &point);
  };
  EXPECT_TRUE(wait());
  detector.Launch(a, "write", {}, {{bytes, 64}});
  EXPECT_FALSE(wait());
  detector.Launch(b, "read", {{bytes, 64}}, {});
  EXPECT_THAT(detector.problems(), SizeIs(1));
  EXPECT_THAT(detector.Waits(), SizeIs(2));
}

TEST(RaceDetectorOptionsTest, KeepsSoManyProblemsAndCountsAll) {
  RaceDetector detector({.max_problems = 2});
  const int a = detector.AddStream("a");
  const int b = detector.AddStream("b");
  const char bytes[64] = {};
  for (int i = 0; i < 5; ++i) {
    detector.Launch(i % 2 == 0 ? a : b, "write", {}, {{bytes, 64}});
  }
  EXPECT_THAT(detector.problems(), SizeIs(2));
  EXPECT_EQ(detector.num_problems(), 4);
}

}  // namespace
}  // namespace tessera::testing
