#include "tessera/testing/communicators.h"

#include <thread>
#include <utility>

#include "tessera/base/status_macros.h"

namespace tessera::testing {

ForwardingCommunicator::ForwardingCommunicator(
    Communicator& inner, std::unique_ptr<Communicator> owned,
    std::shared_ptr<CommLog> log)
    : Communicator({inner.members().begin(), inner.members().end()},
                   inner.rank(), inner.name(), inner.stream(), std::move(log)),
      owned_(std::move(owned)),
      inner_(inner) {}

absl::StatusOr<std::vector<std::string>> ForwardingCommunicator::HostAllGather(
    absl::string_view value) {
  BeforeHostAllGather();
  return inner_.HostAllGather(value);
}

absl::Status ForwardingCommunicator::Enqueue(absl::Span<const Collective> calls,
                                             int64_t) {
  for (const Collective& call : calls) {
    TESSERA_RETURN_IF_ERROR(BeforeCollective(call));
  }
  return inner_.Issue(calls);
}

absl::StatusOr<std::unique_ptr<Communicator>>
ForwardingCommunicator::MakeSubgroup(absl::Span<const int> members,
                                     absl::string_view name, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                           inner_.Subgroup(members, name, stream));
  return Around(std::move(group));
}

absl::StatusOr<std::unique_ptr<Communicator>>
ForwardingCommunicator::MakePartition(absl::Span<const int> members,
                                      absl::string_view name, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                           inner_.Partition(members, name, stream));
  return group == nullptr ? nullptr : Around(std::move(group));
}

CountingCommunicator::CountingCommunicator(Communicator& inner)
    : CountingCommunicator(inner, nullptr, std::make_shared<CommLog>(),
                           std::make_shared<std::atomic<int64_t>>(0)) {}

CountingCommunicator::CountingCommunicator(Communicator& inner,
                                           std::unique_ptr<Communicator> owned,
                                           std::shared_ptr<CommLog> log,
                                           Count host_all_gathers)
    : ForwardingCommunicator(inner, std::move(owned), std::move(log)),
      host_all_gathers_(std::move(host_all_gathers)) {}

int64_t CountingCommunicator::calls() const {
  int64_t calls = 0;
  for (const auto& [key, counter] : log()->counters()) calls += counter.calls;
  return calls;
}

int64_t CountingCommunicator::calls(CollectiveKind kind) const {
  int64_t calls = 0;
  for (const auto& [key, counter] : log()->counters()) {
    if (key.second == kind) calls += counter.calls;
  }
  return calls;
}

int64_t CountingCommunicator::bytes_received() const {
  int64_t bytes = 0;
  for (const auto& [key, counter] : log()->counters()) {
    bytes += counter.bytes_received;
  }
  return bytes;
}

// The log has counted it.
absl::Status CountingCommunicator::BeforeCollective(const Collective&) {
  return absl::OkStatus();
}

std::unique_ptr<Communicator> CountingCommunicator::Around(
    std::unique_ptr<Communicator> group) {
  Communicator& inner = *group;
  return std::unique_ptr<Communicator>(new CountingCommunicator(
      inner, std::move(group), log(), host_all_gathers_));
}

FaultyCommunicator::FaultyCommunicator(Communicator& inner, Fault fault)
    : FaultyCommunicator(inner, nullptr, std::make_shared<CommLog>(),
                         std::make_shared<State>(std::move(fault))) {}

FaultyCommunicator::FaultyCommunicator(Communicator& inner,
                                       std::unique_ptr<Communicator> owned,
                                       std::shared_ptr<CommLog> log,
                                       std::shared_ptr<State> state)
    : ForwardingCommunicator(inner, std::move(owned), std::move(log)),
      state_(std::move(state)) {}

absl::Status FaultyCommunicator::BeforeCollective(const Collective& call) {
  const Fault& fault = state_->fault;
  if (fault.kind.value_or(call.kind) != call.kind) return absl::OkStatus();
  if (state_->calls++ != fault.call) return absl::OkStatus();
  std::this_thread::sleep_for(fault.delay);
  if (!fault.error.ok()) inner().Abort(fault.error);
  return fault.error;
}

std::unique_ptr<Communicator> FaultyCommunicator::Around(
    std::unique_ptr<Communicator> group) {
  Communicator& inner = *group;
  return std::unique_ptr<Communicator>(
      new FaultyCommunicator(inner, std::move(group), log(), state_));
}

}  // namespace tessera::testing
