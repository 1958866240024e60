// The lives of ncclComm_ts, and the memory that they know.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/nccl_network.h"

namespace tessera::emulation {
namespace {

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

}  // namespace

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
