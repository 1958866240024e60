#ifndef TESSERA_TESTING_COMMUNICATORS_H_
#define TESSERA_TESTING_COMMUNICATORS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"
#include "tessera/comm/communicator.h"

// Communicators that hand everything on to another one, and do something more.
// Groups made from them are of their kind:
//
//   CountingCommunicator world(rank.comms.world());
//   CommSet comms(world);
//   TESSERA_RETURN_IF_ERROR(Execute(plan, x, y, comms, rank.stream));
//   // world.calls() == plan.launches()
//
// Groups of one rank communicate nothing and do nothing more here either.

namespace tessera::testing {

// What the others derive from. It has a log of its own, of what is issued
// through it and groups made from it; the inner communicator logs it, too.
class ForwardingCommunicator : public Communicator {
 public:
  absl::StatusOr<std::vector<std::string>> HostAllGather(
      absl::string_view value) override;
  void SetTimeout(std::chrono::milliseconds timeout) override {
    inner_.SetTimeout(timeout);
  }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }

 protected:
  // LIFETIME: borrows `inner`, unless it is `owned`.
  ForwardingCommunicator(Communicator& inner,
                         std::unique_ptr<Communicator> owned,
                         std::shared_ptr<CommLog> log);

  Communicator& inner() const { return inner_; }

 private:
  // Called in front of each collective of more than one rank. An error is the
  // call's result, or that of all calls issued with it, and the inner
  // communicator does not see them.
  virtual absl::Status BeforeCollective(const Collective& call) = 0;
  // Called in front of each host-side exchange.
  virtual void BeforeHostAllGather() {}
  // This kind of communicator around a group made from inner().
  virtual std::unique_ptr<Communicator> Around(
      std::unique_ptr<Communicator> group) = 0;

  absl::Status Enqueue(absl::Span<const Collective> calls,
                       int64_t sequence) final;
  absl::StatusOr<std::unique_ptr<Communicator>> MakeSubgroup(
      absl::Span<const int> members, absl::string_view name,
      Stream& stream) final;
  absl::StatusOr<std::unique_ptr<Communicator>> MakePartition(
      absl::Span<const int> members, absl::string_view name,
      Stream& stream) final;

  const std::unique_ptr<Communicator> owned_;  // null where borrowed
  Communicator& inner_;
};

// Counts what one rank issues through it and groups made from it. Barriers do
// not count.
class CountingCommunicator final : public ForwardingCommunicator {
 public:
  // LIFETIME: borrows `inner`.
  explicit CountingCommunicator(Communicator& inner);

  // Collectives, all or those of a kind. By group they are in log().
  int64_t calls() const;
  int64_t calls(CollectiveKind kind) const;
  // Bytes received in them, as Collective::BytesReceived.
  int64_t bytes_received() const;
  int64_t host_all_gathers() const { return *host_all_gathers_; }

 private:
  using Count = std::shared_ptr<std::atomic<int64_t>>;

  CountingCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned,
                       std::shared_ptr<CommLog> log, Count host_all_gathers);

  absl::Status BeforeCollective(const Collective& call) override;
  void BeforeHostAllGather() override { ++*host_all_gathers_; }
  std::unique_ptr<Communicator> Around(
      std::unique_ptr<Communicator> group) override;

  const Count host_all_gathers_;
};

// What goes wrong, and when.
struct Fault {
  // Counts for these collectives only; without a kind for all, barriers too.
  std::optional<CollectiveKind> kind = std::nullopt;
  // Hits the call of this number, the first of them being 0.
  int64_t call = 0;
  // How long that call waits before anything else happens, as a slow rank does.
  std::chrono::milliseconds delay = {};
  // If an error, the call's result: the group is aborted, so that its other
  // ranks get Aborted with this reason, as of a failed link.
  absl::Status error = {};
};

// Lets one call of one rank go wrong.
//
//   FaultyCommunicator world(rank.comms.world(),
//                            {.kind = CollectiveKind::kAllGather,
//                             .error = absl::UnavailableError("link down")});
class FaultyCommunicator final : public ForwardingCommunicator {
 public:
  // LIFETIME: borrows `inner`.
  FaultyCommunicator(Communicator& inner, Fault fault);

 private:
  struct State {
    explicit State(Fault f) : fault(std::move(f)) {}

    const Fault fault;
    std::atomic<int64_t> calls = 0;  // that the fault counts
  };

  FaultyCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned,
                     std::shared_ptr<CommLog> log,
                     std::shared_ptr<State> state);

  absl::Status BeforeCollective(const Collective& call) override;
  std::unique_ptr<Communicator> Around(
      std::unique_ptr<Communicator> group) override;

  const std::shared_ptr<State> state_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_COMMUNICATORS_H_
