#include "tessera/comm/nccl/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::IsOkAndHolds;
using testing::StatusIs;

constexpr milliseconds kLong(20000);
const std::string kGiven(128, 'g');

// A TCP socket of this host that is bound to a port that was free.
class Bound {
 public:
  Bound() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    socklen_t size = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Bound() { close(fd_); }

  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

int FreePort() { return Bound().port(); }

Rendezvous At(int port, int rank, int num_ranks) {
  return {.address = "127.0.0.1",
          .port = port,
          .rank = rank,
          .num_ranks = num_ranks};
}

// What a rank gives: rank 0 what is shared, the others as many bytes.
std::string GivenBy(int rank) {
  return rank == 0 ? kGiven : std::string(kGiven.size(), '?');
}

// All ranks as threads, of which rank r begins after delays[r].
std::vector<absl::StatusOr<std::string>> Share(
    const std::vector<Rendezvous>& ranks, milliseconds timeout,
    const std::vector<milliseconds>& delays) {
  std::vector<absl::StatusOr<std::string>> got(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      std::this_thread::sleep_for(delays[i]);
      got[i] = ShareFromRankZero(ranks[i], GivenBy(ranks[i].rank), timeout);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return got;
}

TEST(RendezvousTest, GivesEveryRankWhatRankZeroHas) {
  const int port = FreePort();
  EXPECT_THAT(
      Share({At(port, 0, 4), At(port, 1, 4), At(port, 2, 4), At(port, 3, 4)},
            kLong, {{}, {}, {}, {}}),
      Each(IsOkAndHolds(kGiven)));
}

TEST(RendezvousTest, ServesRanksInAnyOrder) {
  const int port = FreePort();
  EXPECT_THAT(Share({At(port, 0, 3), At(port, 1, 3), At(port, 2, 3)}, kLong,
                    {milliseconds(200), {}, milliseconds(400)}),
              Each(IsOkAndHolds(kGiven)));
}

TEST(RendezvousTest, ServesProcesses) {
  const int port = FreePort();
  const pid_t child = fork();
  if (child == 0) {
    const auto got = ShareFromRankZero(At(port, 1, 2), GivenBy(1), kLong);
    _exit(got.ok() && *got == kGiven ? 0 : 1);
  }
  EXPECT_THAT(ShareFromRankZero(At(port, 0, 2), kGiven, kLong),
              IsOkAndHolds(kGiven));
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(RendezvousTest, AsksNobodyWhereThereIsOneRank) {
  EXPECT_THAT(ShareFromRankZero(At(1, 0, 1), kGiven, milliseconds(0)),
              IsOkAndHolds(kGiven));
}

// Two that say nothing or nonsense stay; one leaves at once.
TEST(RendezvousTest, SendsStrangersAway) {
  const int port = FreePort();
  std::thread rank_zero([&] {
    EXPECT_THAT(ShareFromRankZero(At(port, 0, 2), kGiven, kLong),
                IsOkAndHolds(kGiven));
  });
  const sockaddr_in address = Bound::Loopback(port);
  std::vector<int> strangers;
  for (absl::string_view words :
       {"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""}) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    while (connect(fd, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)) != 0) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    send(fd, words.data(), words.size(), MSG_NOSIGNAL);
    strangers.push_back(fd);
  }
  close(strangers.back());
  char answer = 0;
  EXPECT_LE(recv(strangers[1], &answer, 1, 0), 0);  // sent away
  EXPECT_THAT(ShareFromRankZero(At(port, 1, 2), GivenBy(1), kLong),
              IsOkAndHolds(kGiven));
  rank_zero.join();
  close(strangers[0]);
  close(strangers[1]);
}

TEST(RendezvousTest, NamesTheRanksThatDoNotCome) {
  const int port = FreePort();
  const auto got =
      Share({At(port, 0, 4), At(port, 2, 4)}, milliseconds(1500), {{}, {}});
  EXPECT_THAT(got[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                               HasSubstr("waited for ranks 1,3")));
  EXPECT_THAT(got[1], IsOkAndHolds(kGiven));
}

TEST(RendezvousTest, WaitsInVainAtAPortWhereNobodyListens) {
  const Rendezvous wrong = At(FreePort(), 1, 2);
  EXPECT_THAT(ShareFromRankZero(wrong, GivenBy(1), milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("rank 1 waited for rank 0 at 127.0.0.1:")));
}

TEST(RendezvousTest, WaitsInVainWhereSomebodyElseListens) {
  const Bound other;
  ASSERT_EQ(listen(other.fd(), 8), 0);
  EXPECT_THAT(
      ShareFromRankZero(At(other.port(), 1, 2), GivenBy(1), milliseconds(100)),
      StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(RendezvousTest, SaysWhyRankZeroHasNoAddress) {
  Rendezvous nowhere = At(FreePort(), 1, 2);
  nowhere.address = "no such host";
  EXPECT_THAT(ShareFromRankZero(nowhere, GivenBy(1), milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no address for no such host")));
}

TEST(RendezvousTest, NeedsAPortOfItsOwn) {
  const int port = FreePort();
  std::thread rank_zero([&] {
    EXPECT_THAT(ShareFromRankZero(At(port, 0, 2), kGiven, kLong),
                IsOkAndHolds(kGiven));
  });
  // It listens once this rank has connected, and goes on until that has asked.
  const sockaddr_in address = Bound::Loopback(port);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  while (connect(fd, reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)) != 0) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_THAT(ShareFromRankZero(At(port, 0, 2), kGiven, kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("rank 0 cannot listen on port")));
  EXPECT_THAT(ShareFromRankZero(At(port, 1, 2), GivenBy(1), kLong),
              IsOkAndHolds(kGiven));
  rank_zero.join();
  close(fd);
}

TEST(RendezvousTest, RejectsARankOfAnotherWorld) {
  const int port = FreePort();
  const auto got =
      Share({At(port, 0, 2), At(port, 2, 3)}, milliseconds(1500), {{}, {}});
  EXPECT_THAT(got[0], StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("rank 0 of 2"),
                                     HasSubstr("met rank 2 of 3"))));
  EXPECT_THAT(got[1], StatusIs(absl::StatusCode::kDeadlineExceeded));
}

// Environment variables, as a launcher sets them.
class RendezvousEnvironmentTest : public ::testing::Test {
 protected:
  RendezvousEnvironmentTest() {
    Set("RANK", "1");
    Set("WORLD_SIZE", "4");
    Set("MASTER_ADDR", "node0");
    Set("MASTER_PORT", "29500");
  }
  ~RendezvousEnvironmentTest() override {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      unsetenv(name);
    }
  }
  static void Set(const char* name, const char* value) {
    setenv(name, value, /*overwrite=*/1);
  }
};

TEST_F(RendezvousEnvironmentTest, ReadsWhatALauncherSets) {
  const auto place = Rendezvous::FromEnvironment();
  ASSERT_OK(place);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->num_ranks, 4);
  EXPECT_EQ(place->address, "node0");
  EXPECT_EQ(place->port, 29500);
}

TEST_F(RendezvousEnvironmentTest, NamesTheVariableThatIsMissing) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const std::string value = std::getenv(name);
    unsetenv(name);
    EXPECT_THAT(Rendezvous::FromEnvironment(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::string_view(name))));
    Set(name, value.c_str());
  }
}

TEST_F(RendezvousEnvironmentTest, NamesTheVariableThatIsMalformed) {
  struct Case {
    const char* name;
    const char* value;
  };
  for (const Case& c :
       {Case{"RANK", "4"}, Case{"RANK", "-1"}, Case{"RANK", "one"},
        Case{"WORLD_SIZE", "0"}, Case{"WORLD_SIZE", "4x"},
        Case{"MASTER_PORT", "0"}, Case{"MASTER_PORT", "65536"}}) {
    const std::string before = std::getenv(c.name);
    Set(c.name, c.value);
    EXPECT_THAT(Rendezvous::FromEnvironment(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(c.name), HasSubstr(c.value))));
    Set(c.name, before.c_str());
  }
}

}  // namespace
}  // namespace tessera::internal
