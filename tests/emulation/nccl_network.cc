#include "tests/emulation/nccl_network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/device/cpu/elementwise.h"
#include "tests/emulation/machine.h"

namespace tessera::emulation {
namespace {

using internal::Touched;

// How often the state of an ncclComm_t is looked at until NCCL is done.
constexpr int kLooks = 2;
// Every so many groups of an ncclComm_t are not done at once.
constexpr int64_t kGroupsPerSlowOne = 3;

// The group of this thread.
struct Group {
  int depth = 0;
  std::vector<NcclCall> calls = {};
};
thread_local Group group;

DType TypeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
      return DType::kF64;
    case ncclBfloat16:
      return DType::kBF16;
    case ncclFloat16:
      return DType::kF16;
    case ncclInt32:
      return DType::kI32;
    case ncclInt64:
      return DType::kI64;
    default:
      return DType::kF32;
  }
}

ReduceOp OpOf(ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return ReduceOp::kProduct;
    case ncclMin:
      return ReduceOp::kMin;
    case ncclMax:
      return ReduceOp::kMax;
    default:
      return ReduceOp::kSum;
  }
}

absl::string_view NameOf(NcclFunction function) {
  switch (function) {
    case NcclFunction::kAllReduce:
      return "ncclAllReduce";
    case NcclFunction::kReduceScatter:
      return "ncclReduceScatter";
    case NcclFunction::kReduce:
      return "ncclReduce";
    case NcclFunction::kAllGather:
      return "ncclAllGather";
    case NcclFunction::kBroadcast:
      return "ncclBroadcast";
    case NcclFunction::kSend:
      return "ncclSend";
    case NcclFunction::kRecv:
      return "ncclRecv";
  }
  return "";
}

bool IsMessage(const NcclCall& call) {
  return call.function == NcclFunction::kSend ||
         call.function == NcclFunction::kRecv;
}

bool IsReduction(const NcclCall& call) {
  return call.function == NcclFunction::kAllReduce ||
         call.function == NcclFunction::kReduceScatter ||
         call.function == NcclFunction::kReduce;
}

bool HasRoot(const NcclCall& call) {
  return call.function == NcclFunction::kReduce ||
         call.function == NcclFunction::kBroadcast;
}

int SizeOfClique(const NcclCall& call) {
  return static_cast<int>(call.comm->clique->members.size());
}

// Whether all ranks have come.
bool IsComplete(const NcclClique& clique) {
  return std::find(clique.members.begin(), clique.members.end(), nullptr) ==
         clique.members.end();
}

bool IsComplete(const NcclSplit& split) {
  return std::all_of(split.parts.begin(), split.parts.end(),
                     [](const NcclSplit::Part& part) { return part.has_come; });
}

bool IsBlocking(const ncclConfig_t* config) {
  return config == nullptr || config->blocking != 0;
}

bool IsComplete(const NcclWindowSizes& sizes) {
  return std::find(sizes.bytes.begin(), sizes.bytes.end(), 0) ==
         sizes.bytes.end();
}

std::string NameIn(const ncclConfig_t* config) {
  const char* const name = config == nullptr ? nullptr : config->commName;
  return name == nullptr ? "" : name;
}

// What ranks must agree on, in words.
std::string Signature(const NcclCall& call) {
  std::string text =
      absl::StrCat(IsMessage(call) ? "a message" : NameOf(call.function),
                   " of ", call.count, " of type ", call.type);
  if (IsReduction(call)) absl::StrAppend(&text, " by op ", call.op);
  if (HasRoot(call)) absl::StrAppend(&text, " at root ", call.peer);
  return text;
}

// What a call reads, then what it writes; without bytes where it does not.
std::pair<Touched, Touched> MemoryOf(const NcclCall& call) {
  const size_t piece = call.count * SizeOf(TypeOf(call.type));
  const size_t all = piece * SizeOfClique(call);
  const bool is_root = call.peer == call.comm->rank;
  Touched read = {call.send, piece, false};
  Touched written = {call.recv, piece, true};
  switch (call.function) {
    case NcclFunction::kAllReduce:
      break;
    case NcclFunction::kReduceScatter:
      read.bytes = all;
      break;
    case NcclFunction::kAllGather:
      written.bytes = all;
      break;
    case NcclFunction::kReduce:
      if (!is_root) written.bytes = 0;
      break;
    case NcclFunction::kBroadcast:
      if (!is_root) read.bytes = 0;
      break;
    case NcclFunction::kSend:
      written.bytes = 0;
      break;
    case NcclFunction::kRecv:
      read.bytes = 0;
      break;
  }
  return {read, written};
}

// Where the memory lies in a window of the call's rank; -1: in none.
int64_t PlaceInWindow(const NcclCall& call, const void* memory) {
  const auto* const at = static_cast<const char*>(memory);
  const auto& windows = call.comm->windows;
  auto window = windows.upper_bound(at);
  if (window == windows.begin()) return -1;
  --window;
  const auto place = static_cast<size_t>(at - window->first);
  return place < window->second ? static_cast<int64_t>(place) : -1;
}

// Likewise, of what other ranks reach into; -1 where it is nothing.
int64_t ReachedPlace(const NcclCall& call) {
  switch (call.function) {
    case NcclFunction::kReduceScatter:
    case NcclFunction::kReduce:
      return PlaceInWindow(call, call.send);
    case NcclFunction::kAllReduce:
    case NcclFunction::kAllGather:
    case NcclFunction::kBroadcast:
      return PlaceInWindow(call, call.recv);
    case NcclFunction::kSend:
    case NcclFunction::kRecv:
      return -1;
  }
  return -1;
}

// `count` elements that lie `at` elements behind `begin`.
TensorView ViewAt(const void* begin, const NcclCall& call, size_t at) {
  const DType type = TypeOf(call.type);
  auto* const data = static_cast<char*>(const_cast<void*>(begin));
  return TensorView::Flat(data + at * SizeOf(type), type,
                          static_cast<int64_t>(call.count));
}

// The elements `at` of what every rank sends.
std::vector<TensorView> Sends(const std::vector<NcclCall>& calls, size_t at) {
  std::vector<TensorView> sends;
  for (const NcclCall& call : calls) {
    sends.push_back(ViewAt(call.send, call, at));
  }
  return sends;
}

void Move(const TensorView& dst, const TensorView& src) {
  std::memmove(dst.data(), src.data(), src.num_bytes());
}

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

// An ncclComm_t's life.

ncclUniqueId NcclNetwork::NewId() {
  ncclUniqueId id = {};
  absl::StrCat("id ", num_ids_++).copy(id.internal, sizeof(id.internal));
  return id;
}

ncclResult_t NcclNetwork::Init(ncclComm_t* comm, int num_ranks,
                               const ncclUniqueId& id, int rank, int gpu,
                               const ncclConfig_t* config) {
  const std::string key(id.internal, sizeof(id.internal));
  NcclClique& clique = cliques_[key];
  clique.id = key;
  return Join(comm, clique, num_ranks,
              {.clique = &clique,
               .rank = rank,
               .gpu = gpu,
               .is_blocking = IsBlocking(config),
               .name = NameIn(config)});
}

ncclResult_t NcclNetwork::Join(ncclComm_t* comm, NcclClique& clique,
                               size_t num_ranks, ncclComm joining) {
  const int rank = joining.rank;
  clique.members.resize(num_ranks, nullptr);
  comms_.push_back(std::move(joining));
  *comm = &comms_.back();
  if (clique.members.size() != num_ranks || clique.members[rank] != nullptr) {
    Report(*comm, "ranks disagree on who they are");
    return ncclInvalidUsage;
  }
  clique.members[rank] = *comm;
  machine_.MakeProgress();
  if ((*comm)->is_blocking) {
    return machine_.BlockUntil([&] { return IsComplete(clique); }, "joins NCCL")
                   .ok()
               ? ncclSuccess
               : ncclSystemError;
  }
  (*comm)->looks_left = kLooks;
  return ncclInProgress;
}

ncclResult_t NcclNetwork::Split(ncclComm_t comm, int color, int key,
                                ncclComm_t* made, const ncclConfig_t* config) {
  *made = nullptr;
  if (!IsUsable(comm, "ncclCommSplit")) return ncclInvalidArgument;
  if (!comm->pending.empty()) {
    Report(comm, "ncclCommSplit with operations under way");
  }
  ++num_splits_;
  comm->split = &comm->clique->splits[comm->num_splits++];
  comm->split_into = made;
  comm->split->parts.resize(comm->clique->members.size());
  const NcclSplit::Part part = {
      .has_come = true,
      .color = color,
      .key = key,
      .is_blocking = config == nullptr ? comm->is_blocking : IsBlocking(config),
      .name = NameIn(config),
      .num_collectives = comm->num_collectives};
  CheckSplit(comm, part);
  comm->split->parts[comm->rank] = part;
  machine_.MakeProgress();
  if (!comm->is_blocking) {
    comm->looks_left = kLooks;
    return ncclInProgress;
  }
  const NcclSplit& split = *comm->split;
  return machine_.BlockUntil([&] { return IsComplete(split); }, "splits").ok()
             ? FinishSplit(comm)
             : ncclSystemError;
}

void NcclNetwork::CheckSplit(ncclComm_t comm, const NcclSplit::Part& part) {
  for (const NcclSplit::Part& other : comm->split->parts) {
    if (!other.has_come) continue;
    if (other.num_collectives != part.num_collectives) {
      Report(comm, absl::StrCat("ncclCommSplit after ", part.num_collectives,
                                " collectives, on another rank after ",
                                other.num_collectives));
    }
    if (other.color == part.color && other.color != NCCL_SPLIT_NOCOLOR &&
        other.name != part.name) {
      Report(comm, absl::StrCat("ncclCommSplit of color ", part.color, " for '",
                                part.name, "', on another rank for '",
                                other.name, "'"));
    }
  }
}

ncclResult_t NcclNetwork::FinishSplit(ncclComm_t comm) {
  const NcclSplit& split = *std::exchange(comm->split, nullptr);
  const NcclSplit::Part& own = split.parts[comm->rank];
  if (own.color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  int rank = 0;
  size_t num_ranks = 0;
  for (int i = 0; i < static_cast<int>(split.parts.size()); ++i) {
    const NcclSplit::Part& other = split.parts[i];
    if (other.color != own.color) continue;
    ++num_ranks;
    if (std::pair(other.key, i) < std::pair(own.key, comm->rank)) ++rank;
  }
  const std::string id =
      absl::StrCat("color ", own.color, " of split ", comm->num_splits - 1,
                   " of ", comm->clique->id);
  NcclClique& clique = cliques_[id];
  clique.id = id;
  return Join(comm->split_into, clique, num_ranks,
              {.clique = &clique,
               .rank = rank,
               .gpu = comm->gpu,
               .is_blocking = own.is_blocking,
               .name = own.name});
}

ncclResult_t NcclNetwork::GetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = ncclInvalidArgument;
  if (!comm->is_usable) {
    Report(comm, "ncclCommGetAsyncError of an ncclComm_t that is gone");
    return ncclInvalidArgument;
  }
  *error = comm->error;
  if (comm->error != ncclSuccess || comm->looks_left == 0) return ncclSuccess;

  const auto may_go_on = [comm] {
    return IsComplete(*comm->clique) &&
           (comm->split == nullptr || IsComplete(*comm->split)) &&
           (comm->window == nullptr || IsComplete(*comm->window)) &&
           (!comm->is_finalized || comm->pending.empty());
  };
  if (!may_go_on()) {
    machine_.Poll(may_go_on, "waits for NCCL");
    *error =
        machine_.scheduler().failure().ok() ? ncclInProgress : ncclSystemError;
    return ncclSuccess;
  }
  *error = ncclInProgress;
  if (--comm->looks_left > 0) return ncclSuccess;
  if (comm->split != nullptr) {
    const ncclResult_t split = FinishSplit(comm);
    *error = split == ncclInProgress ? ncclSuccess : split;  // the new one's
    return ncclSuccess;
  }
  if (comm->window != nullptr) FinishWindow(comm);
  *error = StartWaiting(comm);
  return ncclSuccess;
}

ncclResult_t NcclNetwork::Finalize(ncclComm_t comm) {
  comm->is_finalized = true;
  if (comm->is_blocking) return ncclSuccess;
  comm->looks_left = kLooks;
  return ncclInProgress;
}

ncclResult_t NcclNetwork::Destroy(ncclComm_t comm) {
  if (comm->is_usable && !comm->pending.empty()) {
    Report(comm, "ncclCommDestroy with operations under way");
  }
  if (!comm->registered.empty()) {
    Report(comm, "ncclCommDestroy with memory that is registered");
  }
  Free(comm);
  return ncclSuccess;
}

ncclResult_t NcclNetwork::Abort(ncclComm_t comm) {
  if (!comm->is_usable) {
    Report(comm, "ncclCommAbort of an ncclComm_t that is gone");
    return ncclInvalidArgument;
  }
  Cancel(comm);
  Free(comm);
  return ncclSuccess;
}

ncclResult_t NcclNetwork::Revoke(ncclComm_t comm) {
  if (!IsUsable(comm, "ncclCommRevoke")) return ncclInvalidArgument;
  Cancel(comm);
  return ncclSuccess;
}

void NcclNetwork::Cancel(ncclComm_t comm) {
  comm->is_usable = false;
  comm->split = nullptr;
  comm->window = nullptr;
  comm->waiting.clear();
  for (const auto& launch : comm->pending) launch->is_cancelled = true;
  if (tells_of_aborts_) {
    for (ncclComm_t other : comm->clique->members) {
      if (other != nullptr && other != comm) other->error = ncclRemoteError;
    }
  }
  machine_.MakeProgress();
}

void NcclNetwork::Free(ncclComm_t comm) {
  if (comm->is_freed) Report(comm, "an ncclComm_t is freed twice");
  comm->is_usable = false;
  comm->is_freed = true;
}

void NcclNetwork::FailFromOutside(int gpu, ncclResult_t error) {
  for (ncclComm& comm : comms_) {
    if (comm.gpu == gpu && comm.is_usable) comm.error = error;
  }
  machine_.MakeProgress();
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

void NcclNetwork::RunMatch(NcclMatch& match) {
  const std::vector<NcclCall>& calls = match.calls;
  const NcclCall& first = calls[0];
  // What does not match has been reported.
  for (const NcclCall& call : calls) {
    if (Signature(call) != Signature(first)) return;
    machine_.OpenMemory(call.comm->gpu);
  }
  switch (first.function) {
    case NcclFunction::kAllReduce: {
      const TensorView sum = ViewAt(first.recv, first, 0);
      ReduceElements(OpOf(first.op), sum, Sends(calls, 0));
      for (const NcclCall& call : calls) Move(ViewAt(call.recv, call, 0), sum);
      return;
    }
    case NcclFunction::kReduceScatter:
      for (size_t i = 0; i < calls.size(); ++i) {
        ReduceElements(OpOf(first.op), ViewAt(calls[i].recv, first, 0),
                       Sends(calls, i * first.count));
      }
      return;
    case NcclFunction::kReduce:
      return ReduceElements(OpOf(first.op),
                            ViewAt(calls[first.peer].recv, first, 0),
                            Sends(calls, 0));
    case NcclFunction::kAllGather:
      for (const NcclCall& call : calls) {
        for (size_t i = 0; i < calls.size(); ++i) {
          Move(ViewAt(call.recv, call, i * call.count),
               ViewAt(calls[i].send, call, 0));
        }
      }
      return;
    case NcclFunction::kBroadcast:
      for (const NcclCall& call : calls) {
        Move(ViewAt(call.recv, call, 0),
             ViewAt(calls[first.peer].send, call, 0));
      }
      return;
    case NcclFunction::kSend:
    case NcclFunction::kRecv:
      return Move(ViewAt(calls[1].recv, first, 0),
                  ViewAt(first.send, first, 0));
  }
}

// Memory.

ncclResult_t NcclNetwork::Register(ncclComm_t comm, void* data, size_t bytes,
                                   void** handle) {
  if (!IsUsable(comm, "ncclCommRegister")) return ncclInvalidArgument;
  CheckRegistration(comm, data, bytes);
  *handle = data;
  return ncclSuccess;
}

void NcclNetwork::CheckRegistration(ncclComm_t comm, void* data, size_t bytes) {
  if (machine_.memory(comm->gpu).BytesAt(data) != static_cast<int64_t>(bytes)) {
    Report(comm, "memory is registered that was not allocated so");
  }
  ++registrations_[comm->gpu];
  if (!comm->registered.insert(data).second) {
    Report(comm, "memory is registered twice");
  }
}

ncclResult_t NcclNetwork::RegisterWindow(ncclComm_t comm, void* data,
                                         size_t bytes, ncclWindow_t* window,
                                         int flags) {
  *window = nullptr;
  if (!IsUsable(comm, "ncclCommWindowRegister")) return ncclInvalidArgument;
  if (flags != NCCL_WIN_COLL_SYMMETRIC) return ncclInvalidArgument;
  comm->window = &comm->clique->windows[comm->num_windows++];
  comm->window_into = window;
  comm->window_data = data;
  std::vector<size_t>& all = comm->window->bytes;
  all.resize(comm->clique->members.size());
  for (size_t other : all) {
    if (other == 0 || other == bytes) continue;
    Report(comm, absl::StrCat("a window of ", bytes, " bytes, on another rank ",
                              other));
  }
  all[comm->rank] = bytes;
  if (has_windows_) CheckRegistration(comm, data, bytes);
  machine_.MakeProgress();
  if (!comm->is_blocking) {
    comm->looks_left = kLooks;
    return ncclInProgress;
  }
  const NcclWindowSizes& sizes = *comm->window;
  if (!machine_.BlockUntil([&] { return IsComplete(sizes); }, "registers")
           .ok()) {
    return ncclSystemError;
  }
  FinishWindow(comm);
  return ncclSuccess;
}

// A window is known by its memory.
void NcclNetwork::FinishWindow(ncclComm_t comm) {
  const NcclWindowSizes& sizes = *std::exchange(comm->window, nullptr);
  if (!has_windows_) return;
  *comm->window_into = static_cast<ncclWindow_t>(comm->window_data);
  comm->windows[static_cast<const char*>(comm->window_data)] =
      sizes.bytes[comm->rank];
}

void NcclNetwork::CheckFree(const void* data) {
  for (ncclComm& comm : comms_) {
    if (comm.is_freed || !comm.registered.contains(const_cast<void*>(data))) {
      continue;
    }
    Report(&comm, "ncclMemFree of memory that is registered");
  }
}

ncclResult_t NcclNetwork::Deregister(ncclComm_t comm, void* handle) {
  if (!IsUsable(comm, "ncclCommDeregister")) return ncclInvalidArgument;
  comm->windows.erase(static_cast<const char*>(handle));
  if (comm->registered.erase(handle) == 0) {
    Report(comm, "ncclCommDeregister of memory that is not registered");
  }
  return ncclSuccess;
}

}  // namespace tessera::emulation
