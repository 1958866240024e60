#include "tessera/base/mutex.h"

#include <chrono>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

struct Gate {
  Mutex mutex;
  CondVar changed;
  bool open ABSL_GUARDED_BY(mutex) = false;
};

void Open(Gate& gate) {
  MutexLock lock(gate.mutex);
  gate.open = true;
  gate.changed.NotifyAll();
}

TEST(CondVarTest, WaitReturnsAfterANotification) {
  Gate gate;
  std::thread opener([&gate] { Open(gate); });
  {
    MutexLock lock(gate.mutex);
    while (!gate.open) gate.changed.Wait(gate.mutex);
  }
  opener.join();
}

TEST(CondVarTest, WaitUntilReturnsFalsePastTheDeadline) {
  Gate gate;
  const auto deadline = CondVar::Clock::now() + std::chrono::milliseconds(5);
  MutexLock lock(gate.mutex);
  while (gate.changed.WaitUntil(gate.mutex, deadline)) {
  }
  EXPECT_GE(CondVar::Clock::now(), deadline);
  EXPECT_FALSE(gate.open);
}

TEST(CondVarTest, WaitUntilHoldsTheMutexAgain) {
  Gate gate;
  std::thread opener([&gate] { Open(gate); });
  const auto deadline = CondVar::Clock::now() + std::chrono::seconds(60);
  {
    MutexLock lock(gate.mutex);
    while (!gate.open && gate.changed.WaitUntil(gate.mutex, deadline)) {
    }
    EXPECT_TRUE(gate.open);
  }
  opener.join();
}

}  // namespace
}  // namespace tessera
