#include "tessera/testing/scheduler.h"

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Runs each program as a host, "host 0" and so on, to the end.
void RunHosts(Scheduler& scheduler,
              const std::vector<std::function<void()>>& programs) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < programs.size(); ++i) {
    const int host = scheduler.AddHost(absl::StrCat("host ", i));
    threads.emplace_back([&scheduler, host, &program = programs[i]] {
      scheduler.Enter(host);
      program();
      scheduler.Leave();
    });
  }
  scheduler.Start();
  for (std::thread& thread : threads) thread.join();
}

// The steps of two hosts with a queue each.
std::vector<std::string> StepsOf(uint64_t seed) {
  Scheduler scheduler(seed);
  const auto program = [&] {
    const int queue = scheduler.AddQueue("queue");
    for (int i = 0; i < 5; ++i) {
      scheduler.Push(queue, {.name = absl::StrCat(i), .run = [] {}});
      scheduler.Yield();
    }
  };
  RunHosts(scheduler, {program, program});
  return scheduler.steps();
}

TEST(SchedulerTest, TheSameSeedGivesTheSameSteps) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(StepsOf(seed), StepsOf(seed)) << seed;
  }
}

TEST(SchedulerTest, SeedsGiveDifferentSteps) {
  std::set<std::vector<std::string>> runs;
  for (uint64_t seed = 0; seed < 20; ++seed) runs.insert(StepsOf(seed));
  EXPECT_THAT(runs, SizeIs(::testing::Ge(15)));
}

TEST(SchedulerTest, RunsAQueueInOrderAndAllOfIt) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Scheduler scheduler(seed);
    std::vector<int> ran;
    RunHosts(scheduler, {[&] {
               const int queue = scheduler.AddQueue("queue");
               for (int i = 0; i < 4; ++i) {
                 scheduler.Push(queue,
                                {.run = [&ran, i] { ran.push_back(i); }});
               }
             }});
    EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3));
  }
}

TEST(SchedulerTest, AnOperationWaitsUntilItIsReady) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Scheduler scheduler(seed);
    std::vector<std::string> ran;
    RunHosts(scheduler, {[&] {
               const int first = scheduler.AddQueue("first");
               const int second = scheduler.AddQueue("second");
               scheduler.Push(
                   second, {.ready = [&] { return scheduler.done(first) == 1; },
                            .run = [&] { ran.push_back("second"); }});
               scheduler.Yield();
               scheduler.Push(first, {.run = [&] { ran.push_back("first"); }});
               EXPECT_OK(scheduler.BlockUntil(
                   [&] { return scheduler.done(second) == 1; }, "waits"));
               EXPECT_THAT(ran, ElementsAre("first", "second"));
             }});
  }
}

TEST(SchedulerTest, AHostMayBeOvertaken) {
  std::set<bool> overtaken;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Scheduler scheduler(seed);
    bool other_came = false;
    RunHosts(scheduler, {[&] {
                           scheduler.Yield();
                           overtaken.insert(other_came);
                         },
                         [&] { other_came = true; }});
  }
  EXPECT_THAT(overtaken, ElementsAre(false, true));
}

TEST(SchedulerTest, SaysWhatEverybodyWaitsForWhenNothingCanGoOn) {
  Scheduler scheduler(0);
  bool ran = false;
  const auto never = [] { return false; };
  RunHosts(
      scheduler,
      {[&] {
         const int queue = scheduler.AddQueue("a queue");
         scheduler.Push(queue, {.name = "wait", .ready = never, .run = [&ran] {
                                  ran = true;
                                }});
         EXPECT_THAT(scheduler.BlockUntil(never, "waits for Godot"),
                     StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("nothing can go on"),
                                    HasSubstr("\n  host 0 waits for Godot"),
                                    HasSubstr("\n  a queue is at wait"))));
         // Whoever is stuck then is so at once.
         EXPECT_FALSE(scheduler.BlockUntil(never, "waits").ok());
       },
       [] {}});
  EXPECT_TRUE(ran);
  EXPECT_FALSE(scheduler.failure().ok());
}

TEST(SchedulerTest, AnOperationThatBlocksIsAnError) {
  Scheduler scheduler(0);
  absl::Status status;
  RunHosts(scheduler, {[&] {
             scheduler.Push(scheduler.AddQueue("queue"), {.run = [&] {
                              scheduler.Yield();  // has no effect here
                              status = scheduler.BlockUntil([] { return true; },
                                                            "waits");
                            }});
           }});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("an operation waits")));
}

TEST(SchedulerTest, DestroysAnOperationBeforeItIsDone) {
  Scheduler scheduler(0);
  RunHosts(scheduler, {[&] {
             const int queue = scheduler.AddQueue("queue");
             auto owned = std::make_shared<int>(1);
             std::weak_ptr<int> weak = owned;
             scheduler.Push(queue, {.run = [owned = std::move(owned)] {}});
             EXPECT_OK(scheduler.BlockUntil(
                 [&] { return scheduler.done(queue) == 1; }, "waits"));
             EXPECT_TRUE(weak.expired());
           }});
}

}  // namespace
}  // namespace tessera::testing
