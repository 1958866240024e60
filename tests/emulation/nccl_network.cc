#include "tests/emulation/nccl_network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/emulation/machine.h"

namespace tessera::emulation {
namespace {

using internal::Touched;

// Every so many groups of an ncclComm_t are not done at once.
constexpr int64_t kGroupsPerSlowOne = 3;

// The group of this thread.
struct Group {
  int depth = 0;
  std::vector<NcclCall> calls = {};
};
thread_local Group group;

}  // namespace

// Reports.

void NcclNetwork::Report(ncclComm_t comm, absl::string_view problem) {
  machine_.Report(comm->gpu,
                  absl::StrCat("NCCL, '", comm->name, "' of ",
                               comm->clique->members.size(), ": ", problem));
}

bool NcclNetwork::IsUsable(ncclComm_t comm, absl::string_view use) {
  if (!comm->is_usable) {
    Report(comm, absl::StrCat(use, " of an ncclComm_t that is gone"));
    return false;
  }
  if (comm->looks_left > 0) {
    Report(comm, absl::StrCat(use, " where NCCL is not done yet"));
    return false;
  }
  return true;
}

void NcclNetwork::CheckMemory(const NcclCall& call) {
  const auto [read, written] = MemoryOf(call);
  for (const Touched& touched : {read, written}) {
    if (touched.bytes == 0) continue;
    if (machine_.memory(call.comm->gpu).Contains(touched.begin)) continue;
    Report(call.comm, absl::StrCat(NameOf(call.function),
                                   " of memory that is not the GPU's"));
  }
}

void NcclNetwork::CheckMatch(const NcclMatch& match, const NcclCall& call) {
  for (size_t i = 0; i < match.launches.size(); ++i) {
    if (match.launches[i] == nullptr) continue;
    const std::string other = Signature(match.calls[i]);
    if (other == Signature(call)) {
      if (ReachedPlace(call) == ReachedPlace(match.calls[i])) return;
      return Report(
          call.comm,
          absl::StrCat(NameOf(call.function), " at ", ReachedPlace(call),
                       " in the window of rank ", call.comm->rank,
                       ", on another one at ", ReachedPlace(match.calls[i])));
    }
    return Report(call.comm,
                  absl::StrCat("rank ", call.comm->rank, " calls ",
                               Signature(call), ", another one ", other));
  }
}

void NcclNetwork::EndProgram(int gpu) {
  if (group.depth > 0) machine_.Report(gpu, "NCCL: a group has no end");
  for (ncclComm& comm : comms_) {
    if (comm.gpu == gpu && !comm.is_freed) {
      Report(&comm, "the ncclComm_t is not destroyed");
    }
  }
}

int64_t NcclNetwork::num_registered(int gpu) const {
  size_t count = 0;
  for (const ncclComm& comm : comms_) {
    if (comm.gpu == gpu) count += comm.registered.size();
  }
  return static_cast<int64_t>(count);
}

// Groups.

ncclResult_t NcclNetwork::GroupStart() {
  ++group.depth;
  return ncclSuccess;
}

void NcclNetwork::DropGroup() { group = {}; }

ncclResult_t NcclNetwork::Add(const NcclCall& call) {
  if (!IsUsable(call.comm, NameOf(call.function))) return ncclInvalidArgument;
  if (call.stream->gpu != call.comm->gpu) {
    Report(call.comm, "a stream of another GPU");
    return ncclInvalidArgument;
  }
  CheckMemory(call);
  group.calls.push_back(call);
  if (group.depth > 0) return ncclSuccess;
  ++group.depth;
  return GroupEnd();
}

ncclResult_t NcclNetwork::GroupEnd() {
  if (group.depth == 0) {
    machine_.Report(CurrentGpu(), "NCCL: a group ends that has not begun");
    return ncclInvalidUsage;
  }
  if (--group.depth > 0) return ncclSuccess;
  const std::vector<NcclCall> calls = std::move(group.calls);
  group.calls.clear();
  std::vector<std::shared_ptr<NcclLaunch>> launches;
  for (const NcclCall& call : calls) {
    auto same =
        std::find_if(launches.begin(), launches.end(), [&](const auto& launch) {
          return launch->comm == call.comm && launch->stream == call.stream;
        });
    if (same == launches.end()) {
      launches.push_back(std::make_shared<NcclLaunch>(
          NcclLaunch{.comm = call.comm, .stream = call.stream, .calls = {}}));
      same = std::prev(launches.end());
    }
    (*same)->calls.push_back(call);
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& launch : launches) {
    const ncclComm_t comm = launch->comm;
    comm->waiting.push_back(launch);
    if (!comm->is_blocking && comm->num_groups++ % kGroupsPerSlowOne == 0) {
      comm->looks_left = kLooks;
      result = ncclInProgress;
      continue;
    }
    const ncclResult_t started = StartWaiting(comm);
    if (started != ncclSuccess) result = started;
  }
  return result;
}

ncclResult_t NcclNetwork::StartWaiting(ncclComm_t comm) {
  const auto waiting = std::exchange(comm->waiting, {});
  for (const auto& launch : waiting) {
    const ncclResult_t result = Enqueue(launch);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

std::shared_ptr<NcclMatch> NcclNetwork::MatchOf(const NcclCall& call,
                                                size_t* place) {
  const ncclComm_t comm = call.comm;
  NcclClique& clique = *comm->clique;
  size_t members = clique.members.size();
  std::shared_ptr<NcclMatch>* match = nullptr;
  if (IsMessage(call)) {
    if (call.function == NcclFunction::kSend) {
      match =
          &clique
               .messages[{comm->rank, call.peer, comm->num_sends[call.peer]++}];
      *place = 0;
    } else {
      match =
          &clique
               .messages[{call.peer, comm->rank, comm->num_recvs[call.peer]++}];
      *place = 1;
    }
    members = 2;
  } else {
    match = &clique.collectives[comm->num_collectives++];
    *place = comm->rank;
  }
  if (*match == nullptr) {
    *match = std::make_shared<NcclMatch>();
    (*match)->launches.resize(members);
    (*match)->calls.resize(members);
  }
  return *match;
}

NcclNetwork::~NcclNetwork() {
  for (auto& [id, clique] : cliques_) {
    for (auto& [number, match] : clique.collectives) match->launches.clear();
    for (auto& [number, match] : clique.messages) match->launches.clear();
  }
}

ncclResult_t NcclNetwork::Enqueue(const std::shared_ptr<NcclLaunch>& launch) {
  std::vector<Touched> touched;
  for (const NcclCall& call : launch->calls) {
    size_t place = 0;
    const std::shared_ptr<NcclMatch> match = MatchOf(call, &place);
    CheckMatch(*match, call);
    match->launches[place] = launch;
    match->calls[place] = call;
    launch->matches.push_back(match);
    const auto [read, written] = MemoryOf(call);
    for (const Touched& some : {read, written}) {
      if (some.bytes > 0) touched.push_back(some);
    }
  }
  launch->position = machine_.scheduler().pushed(launch->stream->queue);
  launch->comm->pending.push_back(launch);
  order_[launch->comm->gpu].push_back(launch);
  const std::string name = absl::StrCat(NameOf(launch->calls.front().function),
                                        " of '", launch->comm->name, "'");
  const cudaError_t error = machine_.Enqueue(
      launch->stream, {.name = name,
                       .touched = touched,
                       .ready = [this, launch] { return IsReady(*launch); },
                       .work = [this, launch] { Run(*launch); }});
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// Operations.

bool NcclNetwork::HasArrived(const NcclLaunch& launch) const {
  if (launch.is_cancelled) return false;
  if (launch.is_done) return true;
  return order_.at(launch.comm->gpu).front().get() == &launch &&
         machine_.scheduler().done(launch.stream->queue) == launch.position;
}

bool NcclNetwork::IsReady(const NcclLaunch& launch) const {
  if (launch.is_cancelled) return true;
  return std::all_of(
      launch.matches.begin(), launch.matches.end(), [&](const auto& match) {
        return match->is_done ||
               std::all_of(match->launches.begin(), match->launches.end(),
                           [&](const auto& other) {
                             return other != nullptr && HasArrived(*other);
                           });
      });
}

void NcclNetwork::Run(NcclLaunch& launch) {
  if (!launch.is_cancelled) {
    for (const auto& match : launch.matches) {
      if (!std::exchange(match->is_done, true)) RunMatch(*match);
    }
  }
  launch.is_done = true;
  const auto is_this = [&](const auto& other) {
    return other.get() == &launch;
  };
  std::erase_if(order_[launch.comm->gpu], is_this);
  std::erase_if(launch.comm->pending, is_this);
}

void NcclNetwork::RunMatch(const NcclMatch& match) {
  const std::vector<NcclCall>& calls = match.calls;
  const NcclCall& first = calls[0];
  // What does not match has been reported.
  for (const NcclCall& call : calls) {
    if (Signature(call) != Signature(first)) return;
    machine_.OpenMemory(call.comm->gpu);
  }
  RunTogether(calls);
}

}  // namespace tessera::emulation
