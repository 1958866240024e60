#ifndef TESSERA_COMM_MPI_MPI_TRANSPORT_H_
#define TESSERA_COMM_MPI_MPI_TRANSPORT_H_

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/mpi/mpi_world.h"

namespace tessera::internal {

// OK, or Internal with MPI's own text: "comm: MPI_Isend: ...".
absl::Status MpiStatus(absl::string_view function, int code);

// What a message of a group is for. Messages of one channel between two ranks
// keep their order.
enum class MpiChannel { kMeeting, kData, kHost, kFailure };

// What the groups of one MpiWorld share: a duplicate of its MPI communicator,
// and the ids that tell the groups of this rank apart. Thread-safe.
class MpiTransport {
 public:
  // COLLECTIVE over `comm`. REQUIRES: MPI is there for all threads.
  // ERRORS: InvalidArgument as of MpiWorld::CreateFrom.
  static absl::StatusOr<std::shared_ptr<MpiTransport>> Create(
      MPI_Comm comm, const MpiWorld::Options& options);

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const MpiWorld::Options& options() const { return options_; }

  // Groups with a member in common have different ids: that of a new group is
  // the highest that any member has free, and is then taken on all of them.
  int64_t FreeId();
  void TakeId(int64_t id);
  // True if MPI has tags for the group.
  bool HasTags(int64_t id) const;
  // REQUIRES: HasTags(id).
  static int TagOf(int64_t id, MpiChannel channel);

 private:
  MpiTransport(MPI_Comm comm, int rank, int size, int max_tag,
               const MpiWorld::Options& options)
      : comm_(comm),
        rank_(rank),
        size_(size),
        max_tag_(max_tag),
        options_(options) {}

  const MPI_Comm comm_;
  const int rank_;
  const int size_;
  const int max_tag_;
  const MpiWorld::Options options_;
  Mutex mutex_;
  int64_t free_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Messages that are under way together. Started at once; Test drives them on.
// Where it is destroyed before they are done it gives up: takes back what is
// not on its way yet, and leaves the rest to MPI, and the memory of that to the
// end of the process.
class MpiBatch {
 public:
  // LIFETIME: borrows the transport.
  explicit MpiBatch(MpiTransport& transport) : transport_(transport) {}
  ~MpiBatch();
  MpiBatch(const MpiBatch&) = delete;
  MpiBatch& operator=(const MpiBatch&) = delete;

  // What keeps the memory of a message.
  using Owner = std::shared_ptr<const void>;
  // Memory that is not part of `owner` must stay until MPI is done.
  absl::Status Send(int peer, int tag, const void* data, int64_t bytes,
                    Owner owner);
  absl::Status Receive(int peer, int tag, void* data, int64_t bytes,
                       Owner owner);
  // A single message. Needs no memory to stay.
  absl::Status Send(int peer, int tag, std::shared_ptr<const std::string> text);
  // A single message whose memory is part of `owner`, which needs not stay.
  absl::Status SendOne(int peer, int tag, absl::string_view message,
                       Owner owner);
  // The same of up to so many bytes.
  absl::Status ReceiveOne(int peer, int tag, char* data, int64_t most_bytes,
                          Owner owner);
  // The next message from `peer` if it has come, of any length, into `text`,
  // which is part of `owner`. False if it has not.
  absl::StatusOr<bool> ReceiveIfThere(int peer, int tag, std::string& text,
                                      Owner owner);

  // Whether there are none, or all are known to be done.
  bool empty() const { return requests_.empty(); }
  // True once all are done.
  absl::StatusOr<bool> Test();
  // The peers, as ranks of the transport, of those that are not done.
  std::vector<int> Unfinished();

 private:
  struct About {
    int peer = 0;
    bool is_receive = false;
    Owner memory = nullptr;  // null: the caller's
  };

  void Add(MPI_Request request, About about);
  void GiveUp();

  MpiTransport& transport_;
  absl::InlinedVector<MPI_Request, 16> requests_;
  absl::InlinedVector<About, 16> about_;  // of the requests
};

// A message from any rank to this tag, if one has come.
absl::StatusOr<std::optional<std::string>> MpiReceiveFromAny(
    MpiTransport& transport, int tag);

}  // namespace tessera::internal

#endif  // TESSERA_COMM_MPI_MPI_TRANSPORT_H_
