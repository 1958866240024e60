#ifndef TESSERA_COMM_MPI_LETTERS_H_
#define TESSERA_COMM_MPI_LETTERS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tessera/comm/mpi/mpi_algorithms.h"

namespace tessera::internal {

// What ranks send each other where they meet, one letter to each peer: a head,
// and behind it the first messages of the operation, as long as they fit. Both
// ends know how long these are, so the receiver finds the same ones. A head
// that does not fit comes by itself.
//
// The memory of both directions, used again from one meeting to the next.
class Letters {
 public:
  static constexpr int64_t kHeadBytes = 1 << 10;
  // With a head of common length, a letter is what MPI sends at once, whether
  // or not the receiver looks. For what is longer, copies take more than a
  // second round.
  static constexpr int64_t kBodyBytes = 3 << 10;
  static constexpr int64_t kMostBytes =
      sizeof(int64_t) + kHeadBytes + kBodyBytes;

  explicit Letters(int peers)
      : sent_(peers * kMostBytes),
        received_(peers * kMostBytes),
        sent_bytes_(peers),
        body_bytes_(peers),
        read_(peers) {}

  // New letters with this head to all.
  void Begin(absl::string_view head) {
    for (size_t peer = 0; peer < sent_bytes_.size(); ++peer) {
      const auto bytes = static_cast<int64_t>(head.size());
      sent_bytes_[peer] = body_bytes_[peer] = read_[peer] = 0;
      Append(peer, &bytes, sizeof(bytes));
      if (bytes <= kHeadBytes) Append(peer, head.data(), bytes);
    }
  }
  // False where it does not fit, nor anything from then on.
  bool Add(const Message& m) {
    body_bytes_[m.peer] += m.bytes;
    if (body_bytes_[m.peer] > kBodyBytes) return false;
    Append(m.peer, m.data, m.bytes);
    return true;
  }
  absl::string_view Sent(int peer) const {
    return absl::string_view(sent_.data() + peer * kMostBytes,
                             sent_bytes_[peer]);
  }

  // Where the peer's letter is to be received.
  char* Received(int peer) { return received_.data() + peer * kMostBytes; }
  int64_t HeadBytes(int peer) const {
    int64_t bytes = 0;
    std::memcpy(&bytes, received_.data() + peer * kMostBytes, sizeof(bytes));
    return bytes;
  }
  bool HasHead(int peer) const { return HeadBytes(peer) <= kHeadBytes; }
  // REQUIRES: HasHead(peer).
  absl::string_view Head(int peer) const {
    return absl::string_view(
        received_.data() + peer * kMostBytes + sizeof(int64_t),
        HeadBytes(peer));
  }
  // Whether this head, of `rank`, has come in the letters of all others.
  bool AllHave(absl::string_view head, int rank) const {
    for (int peer = 0; peer < static_cast<int>(read_.size()); ++peer) {
      if (peer == rank) continue;
      if (!HasHead(peer) || Head(peer) != head) return false;
    }
    return true;
  }
  // The next message, to m.data. False where it comes by itself. REQUIRES: the
  // ranks agree.
  bool Take(const Message& m) {
    const int64_t head = HasHead(m.peer) ? HeadBytes(m.peer) : 0;
    const int64_t begin = sizeof(int64_t) + head + read_[m.peer];
    read_[m.peer] += m.bytes;
    if (read_[m.peer] > kBodyBytes) return false;
    std::memcpy(m.data, Received(m.peer) + begin, m.bytes);
    return true;
  }

 private:
  void Append(size_t peer, const void* data, int64_t bytes) {
    if (bytes == 0) return;
    std::memcpy(sent_.data() + peer * kMostBytes + sent_bytes_[peer], data,
                bytes);
    sent_bytes_[peer] += bytes;
  }

  std::vector<char> sent_;
  std::vector<char> received_;
  // By peer.
  std::vector<int64_t> sent_bytes_;
  std::vector<int64_t> body_bytes_;  // asked for
  std::vector<int64_t> read_;        // of the body received
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_MPI_LETTERS_H_
