#include "tessera/comm/nccl/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/deadline.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

using Clock = std::chrono::steady_clock;

// Between two tries to reach rank 0.
constexpr auto kBetweenTries = std::chrono::milliseconds(20);
// How long one look at the sockets lasts.
constexpr int kLookMs = 20;

// What a rank says first. Hosts are of one kind.
struct Hello {
  char magic[8];
  int32_t rank;
  int32_t num_ranks;
};
constexpr char kMagic[8] = {'t', 'e', 's', 's', 'e', 'r', 'a', '1'};

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

std::string PlaceName(const Rendezvous& place) {
  return absl::StrCat(place.address, ":", place.port);
}

// Of the place; those to listen at where `passive`.
absl::StatusOr<Addresses> FindAddresses(const Rendezvous& place, bool passive) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(passive ? nullptr : place.address.c_str(),
                  absl::StrCat(place.port).c_str(), &hints, &found);
  if (error == 0) return Addresses(found, &freeaddrinfo);
  return absl::UnavailableError(absl::StrCat(
      "comm: no address for ", PlaceName(place), ": ", gai_strerror(error)));
}

// The first bytes that a peer sends, as they come.
struct Guest {
  Socket socket;
  std::string said = "";
};

// Rank 0's side.
class Host {
 public:
  Host(const Rendezvous& place, absl::string_view given)
      : place_(place), given_(given), has_come_(place.num_ranks, false) {
    has_come_[0] = true;
  }

  absl::Status Listen();
  absl::Status Serve(Clock::time_point deadline);

 private:
  bool IsComplete() const {
    return std::all_of(has_come_.begin(), has_come_.end(),
                       [](bool has_come) { return has_come; });
  }
  absl::Status TimedOut() const;
  // Waits a moment for something to come.
  void Look();
  void Accept();
  // False once the guest has to go.
  absl::StatusOr<bool> Hear(Guest& guest);
  absl::StatusOr<bool> Answer(Guest& guest);

  const Rendezvous& place_;
  const absl::string_view given_;
  std::vector<bool> has_come_;  // by rank
  std::vector<Socket> listening_;
  std::vector<Guest> guests_;
};

absl::Status Host::Listen() {
  TESSERA_ASSIGN_OR_RETURN(const Addresses addresses,
                           FindAddresses(place_, /*passive=*/true));
  int error = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Socket socket(
        ::socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK, a->ai_protocol));
    const int on = 1;
    setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // One socket for each kind of address.
    if (a->ai_family == AF_INET6) {
      setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    if (bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 &&
        listen(socket.fd(), SOMAXCONN) == 0) {
      listening_.push_back(std::move(socket));
    } else {
      error = errno;
    }
  }
  if (!listening_.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("comm: rank 0 cannot listen on port ", place_.port, ": ",
                   std::strerror(error)));
}

absl::Status Host::Serve(Clock::time_point deadline) {
  while (!IsComplete()) {
    if (Clock::now() >= deadline) return TimedOut();
    Look();
    Accept();
    for (size_t i = guests_.size(); i-- > 0;) {
      TESSERA_ASSIGN_OR_RETURN(const bool stays, Hear(guests_[i]));
      if (!stays) guests_.erase(guests_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return absl::OkStatus();
}

absl::Status Host::TimedOut() const {
  std::vector<int> missing;
  for (int rank = 0; rank < place_.num_ranks; ++rank) {
    if (!has_come_[rank]) missing.push_back(rank);
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "comm: rank 0 at ", PlaceName(place_), " waited for ",
      missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ",")));
}

void Host::Look() {
  std::vector<pollfd> fds;
  for (const Socket& s : listening_) fds.push_back({s.fd(), POLLIN, 0});
  for (const Guest& g : guests_) fds.push_back({g.socket.fd(), POLLIN, 0});
  poll(fds.data(), fds.size(), kLookMs);
}

void Host::Accept() {
  for (const Socket& listening : listening_) {
    const int fd = accept4(listening.fd(), nullptr, nullptr, SOCK_NONBLOCK);
    if (fd >= 0) guests_.push_back({Socket(fd)});
  }
}

absl::StatusOr<bool> Host::Hear(Guest& guest) {
  char bytes[sizeof(Hello)];
  const ssize_t got =
      recv(guest.socket.fd(), bytes, sizeof(bytes) - guest.said.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  guest.said.append(bytes, got);
  return guest.said.size() < sizeof(Hello) ? true : Answer(guest);
}

absl::StatusOr<bool> Host::Answer(Guest& guest) {
  Hello hello;
  std::memcpy(&hello, guest.said.data(), sizeof(hello));
  if (std::memcmp(hello.magic, kMagic, sizeof(kMagic)) != 0) return false;
  if (hello.num_ranks != place_.num_ranks || hello.rank <= 0 ||
      hello.rank >= place_.num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: rank 0 of ", place_.num_ranks, " at ", PlaceName(place_),
        " met rank ", hello.rank, " of ", hello.num_ranks));
  }
  // Few bytes: a new connection takes them all.
  const ssize_t sent =
      send(guest.socket.fd(), given_.data(), given_.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(given_.size())) has_come_[hello.rank] = true;
  return false;
}

// The side of the others.

// Waits for the socket to be ready for `events`. False past the deadline.
bool AwaitReady(const Socket& socket, int16_t events,
                Clock::time_point deadline) {
  pollfd fd = {socket.fd(), events, 0};
  while (Clock::now() < deadline) {
    if (poll(&fd, 1, kLookMs) > 0) return true;
  }
  return false;
}

// Connected, or -1.
Socket Connect(const addrinfo& address, Clock::time_point deadline) {
  Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK,
                         address.ai_protocol));
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS || !AwaitReady(socket, POLLOUT, deadline)) {
      return Socket(-1);
    }
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Socket(-1);
  }
  return socket;
}

// What rank 0 answers; short where it does not.
std::string Ask(const Socket& socket, const Rendezvous& place, size_t bytes,
                Clock::time_point deadline) {
  Hello hello = {.magic = {}, .rank = place.rank, .num_ranks = place.num_ranks};
  std::memcpy(hello.magic, kMagic, sizeof(kMagic));
  std::string answer;
  if (send(socket.fd(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
    return answer;
  }
  while (answer.size() < bytes && AwaitReady(socket, POLLIN, deadline)) {
    char some[512];
    const ssize_t got = recv(socket.fd(), some,
                             std::min(sizeof(some), bytes - answer.size()), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) break;
    answer.append(some, got);
  }
  return answer;
}

// One try, at every address that rank 0 has; short where none of them answers.
absl::StatusOr<std::string> TryRankZero(const Rendezvous& place, size_t bytes,
                                        Clock::time_point deadline) {
  TESSERA_ASSIGN_OR_RETURN(const Addresses addresses,
                           FindAddresses(place, /*passive=*/false));
  std::string answer;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const Socket socket = Connect(*a, deadline);
    if (socket.fd() < 0) continue;
    answer = Ask(socket, place, bytes, deadline);
    if (answer.size() == bytes) break;
  }
  return answer;
}

// Even the name of rank 0's host may not be known yet.
absl::StatusOr<std::string> AskRankZero(const Rendezvous& place, size_t bytes,
                                        Clock::time_point deadline) {
  absl::Status error;
  while (Clock::now() < deadline) {
    absl::StatusOr<std::string> answer = TryRankZero(place, bytes, deadline);
    if (answer.ok() && answer->size() == bytes) return answer;
    error = answer.status();
    std::this_thread::sleep_for(kBetweenTries);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("comm: rank ", place.rank, " waited for rank 0 at ",
                   PlaceName(place), error.ok() ? "" : "; ", error.message()));
}

// The environment.

absl::StatusOr<std::string> Variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr && *value != '\0') return std::string(value);
  return absl::InvalidArgumentError(absl::StrCat(
      "comm: want the environment variable ", name, ", found none"));
}

absl::StatusOr<int> NumberVariable(const char* name, int min, int max) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, Variable(name));
  int value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= min && value <= max) {
    return value;
  }
  return absl::InvalidArgumentError(absl::StrCat("comm: want a number in [",
                                                 min, ",", max, "] in ", name,
                                                 ", found '", text, "'"));
}

}  // namespace

absl::StatusOr<Rendezvous> Rendezvous::FromEnvironment() {
  Rendezvous place;
  TESSERA_ASSIGN_OR_RETURN(place.num_ranks,
                           NumberVariable("WORLD_SIZE", 1, INT32_MAX));
  TESSERA_ASSIGN_OR_RETURN(place.rank,
                           NumberVariable("RANK", 0, place.num_ranks - 1));
  TESSERA_ASSIGN_OR_RETURN(place.address, Variable("MASTER_ADDR"));
  TESSERA_ASSIGN_OR_RETURN(place.port, NumberVariable("MASTER_PORT", 1, 65535));
  return place;
}

absl::StatusOr<std::string> ShareFromRankZero(
    const Rendezvous& place, absl::string_view given,
    std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = DeadlineAfter(Clock::now(), timeout);
  if (place.num_ranks == 1) return std::string(given);
  if (place.rank != 0) return AskRankZero(place, given.size(), deadline);
  Host host(place, given);
  TESSERA_RETURN_IF_ERROR(host.Listen());
  TESSERA_RETURN_IF_ERROR(host.Serve(deadline));
  return std::string(given);
}

}  // namespace tessera::internal
