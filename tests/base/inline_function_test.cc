#include "tessera/base/inline_function.h"

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "gtest/gtest.h"

namespace tessera {
namespace {

using Function = InlineFunction<int(int), 32>;

int Twice(int i) { return 2 * i; }

// Counts the copies of itself that are alive.
class Counted {
 public:
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  Counted(Counted&& other) noexcept : alive_(other.alive_) { ++*alive_; }
  ~Counted() { --*alive_; }
  int operator()(int i) { return i + *alive_; }

 private:
  int* alive_;
};

TEST(InlineFunction, CallsWhatItHolds) {
  EXPECT_EQ(Function(Twice)(3), 6);
  Function count = [n = 0](int i) mutable { return n += i; };
  EXPECT_EQ(count(2), 2);
  EXPECT_EQ(count(3), 5);
}

TEST(InlineFunction, HoldsLargeCallables) {
  std::array<int, 100> large = {};
  large[99] = 7;
  Function f = [large](int i) { return large[99] + i; };
  Function moved = std::move(f);
  EXPECT_EQ(moved(1), 8);
}

TEST(InlineFunction, MovesWhatCannotBeCopied) {
  Function f = [p = std::make_unique<int>(5)](int i) { return *p + i; };
  Function moved = std::move(f);
  EXPECT_EQ(moved(1), 6);
  EXPECT_FALSE(f);  // NOLINT(bugprone-use-after-move)
  f = std::move(moved);
  EXPECT_EQ(f(2), 7);
}

TEST(InlineFunction, IsEmptyWhereMadeOfNothing) {
  EXPECT_FALSE(Function());
  EXPECT_FALSE(Function(nullptr));
  EXPECT_TRUE(Function(Twice));
}

TEST(InlineFunction, DestroysWhatItHoldsOnce) {
  int alive = 0;
  {
    Function f = Counted(&alive);
    EXPECT_EQ(alive, 1);
    Function g = std::move(f);
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(g(1), 2);
    g = Function(Twice);
    EXPECT_EQ(alive, 0);
    g = Counted(&alive);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace tessera
