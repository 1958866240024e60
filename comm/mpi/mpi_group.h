#ifndef TESSERA_COMM_MPI_MPI_GROUP_H_
#define TESSERA_COMM_MPI_MPI_GROUP_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/base/mutex.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/mpi/letters.h"
#include "tessera/comm/mpi/mpi_algorithms.h"
#include "tessera/comm/mpi/mpi_transport.h"
#include "tessera/comm/operation_pool.h"

namespace tessera::internal {

// This process's end of a group: the messages that its members exchange. Errors
// are worded as those of the local backend.
//
// 1. All channels of a group are its own: what a group leaves behind when it
//    fails is nobody else's.
// 2. Whoever waits looks for what others report, and the clock. The first
//    failure that a member sees is told to all members, and the group takes
//    nothing more.
//
// Thread-safe; one call of Run and one of the host's functions (HostAllGather,
// MakeGroup) at a time.
class MpiGroup final : public OperationGroup {
 public:
  // `members` are ranks of the transport, in group order; `rank` is an index.
  MpiGroup(std::shared_ptr<MpiTransport> transport, int64_t id,
           std::string name, std::vector<int> members, int rank);

  const std::vector<int>& members() const { return members_; }
  int rank() const { return rank_; }
  const std::shared_ptr<MpiTransport>& transport() const { return transport_; }

  // How long this process waits for the others from now on; at first what the
  // options say.
  void SetTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Returns once this rank has what it is to have, and its memory is free.
  absl::Status Run(int rank, absl::Span<const Collective> calls) override;
  void Abort(absl::string_view reason) override;

  // What every member gave, in group order. A sequence of its own.
  absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view value);

  // A group of those members, indices in this group. COLLECTIVE over them.
  // ERRORS: ResourceExhausted where MPI has no tags left.
  absl::StatusOr<std::shared_ptr<MpiGroup>> MakeGroup(
      absl::Span<const int> members, absl::string_view name);

  // OK, or Aborted with the reason. Misses what was reported in the last
  // millisecond, which the next operation sees where it waits.
  absl::Status status() override;

 private:
  // What is being waited for, for errors.
  struct Moment {
    absl::string_view what;  // "all_reduce"
    int64_t number;
  };

  int size() const { return static_cast<int>(members_.size()); }
  int Tag(MpiChannel channel) const {
    return MpiTransport::TagOf(id_, channel);
  }

  // What each of `members` gives here, in their order. Fails the group where it
  // fails.
  absl::StatusOr<std::vector<std::string>> Exchange(
      absl::Span<const int> members, MpiChannel channel,
      absl::string_view value, const Moment& moment);
  absl::Status RunCalls(absl::Span<const Collective> calls,
                        const Moment& moment);
  absl::StatusOr<std::vector<std::string>> TryToExchange(
      absl::Span<const int> members, MpiChannel channel,
      absl::string_view value, const Moment& moment);
  // Whether ranks meet before they move anything for these calls.
  bool MustMeet(absl::Span<const Collective> calls) const;
  // Meets the others, compares the calls, and moves the first messages. Those
  // that are short come with what is compared.
  absl::Status MeetAndMove(absl::Span<const Collective> calls,
                           absl::Span<const Message> sends,
                           absl::Span<const Message> recvs,
                           const Moment& moment);
  // Exchanges the letters that are written, with this head.
  absl::Status ExchangeLetters(absl::string_view head, const Moment& moment);
  // Fails where members disagree. `head` is what EncodeCalls gives for `calls`.
  absl::Status Compare(absl::Span<const Collective> calls,
                       absl::string_view head, const Moment& moment);
  // What the members disagree on, or "".
  absl::StatusOr<std::string> FindDifference(absl::Span<const Collective> calls,
                                             absl::string_view head,
                                             const Moment& moment);
  // Those of all members, of which long ones are still under way.
  absl::StatusOr<std::vector<std::string>> AllHeads(absl::string_view head,
                                                    const Moment& moment);
  absl::Status Move(absl::Span<const Message> sends,
                    absl::Span<const Message> recvs, const Moment& moment);

  // Waits until the messages are done.
  absl::Status Finish(MpiBatch& batch, const Moment& moment);

  // OK, or what the group has failed with by now.
  absl::Status KnownFailure();
  // The same, having looked for reports.
  absl::Status LookForFailure();
  // Fails the group, unless it has failed already, tells the members, and
  // returns what it failed with. OK does nothing.
  absl::Status Fail(const absl::Status& failure);
  // The same for what a member has told all members.
  absl::Status Note(const absl::Status& failure);
  absl::Status TimeoutOf(std::vector<int> missing, const Moment& moment) const;

  // The indices of all members.
  std::vector<int> Everyone() const;
  // "operation 3 of 'dp'"
  std::string Where(const Moment& moment) const;

  const std::shared_ptr<MpiTransport> transport_;
  const int64_t id_;
  const std::string name_;
  const std::vector<int> members_;
  const int rank_;
  std::atomic<std::chrono::milliseconds> timeout_;
  // When reports were last looked for.
  std::atomic<std::chrono::steady_clock::time_point> looked_at_{};
  int64_t num_operations_ = 0;  // that have come to Run
  int64_t num_host_calls_ = 0;
  const std::shared_ptr<OperationMemory> memory_ =
      std::make_shared<OperationMemory>();
  std::shared_ptr<Letters> letters_;  // null before the first meeting
  std::string agreed_;  // a head with which, given by all, there is agreement

  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_MPI_MPI_GROUP_H_
