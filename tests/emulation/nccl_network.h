#ifndef TESSERA_TESTS_EMULATION_NCCL_NETWORK_H_
#define TESSERA_TESTS_EMULATION_NCCL_NETWORK_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tests/emulation/nccl_call.h"

namespace tessera::emulation {

class Machine;

struct NcclLaunch;

// Calls of all members that belong together. Launches share their matches, and
// matches their launches, until NcclNetwork ends.
struct NcclMatch {
  // By rank; of a message the sender's, then the receiver's. Null: has not
  // come.
  std::vector<std::shared_ptr<NcclLaunch>> launches;
  std::vector<NcclCall> calls;
  bool is_done = false;
};

// What one rank enqueued on a stream between ncclGroupStart and ncclGroupEnd.
struct NcclLaunch {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<NcclCall> calls;
  std::vector<std::shared_ptr<NcclMatch>> matches = {};
  int64_t position = 0;  // in its stream's queue
  bool is_done = false;
  bool is_cancelled = false;  // its ncclComm_t was aborted
};

// What ranks give to the n-th ncclCommSplit of a clique, by rank.
struct NcclSplit {
  struct Part {
    bool has_come = false;
    int color = 0;
    int key = 0;
    bool is_blocking = false;
    std::string name = "";
    int64_t num_collectives = 0;  // before
  };
  std::vector<Part> parts;
};

// What ranks give to the n-th ncclCommWindowRegister of a clique, by rank; 0:
// has not come.
struct NcclWindowSizes {
  std::vector<size_t> bytes;
};

// The ranks that were given one id, or one color.
struct NcclClique {
  std::string id;
  std::vector<ncclComm_t> members;  // by rank; null: has not come
  std::map<int64_t, std::shared_ptr<NcclMatch>> collectives;  // by number
  // By sender, receiver and number.
  std::map<std::tuple<int, int, int64_t>, std::shared_ptr<NcclMatch>> messages;
  std::map<int64_t, NcclSplit> splits;  // by number
  std::map<int64_t, NcclWindowSizes> windows;
};

}  // namespace tessera::emulation

// The type that NCCL's header leaves open.
struct ncclComm {
  tessera::emulation::NcclClique* clique;
  int rank;
  int gpu;
  bool is_blocking;
  std::string name;
  bool is_usable = true;  // not destroyed, aborted or revoked
  bool is_freed = false;
  bool is_finalized = false;
  ncclResult_t error = ncclSuccess;
  // Looks at its state until NCCL is done with a call; 0: it is.
  int looks_left = 0;
  // The one that it is in, and where the new ncclComm_t goes; null: in none.
  tessera::emulation::NcclSplit* split = nullptr;
  ncclComm** split_into = nullptr;
  int64_t num_splits = 0;
  // Likewise, of windows, and what is registered.
  tessera::emulation::NcclWindowSizes* window = nullptr;
  ncclWindow_t* window_into = nullptr;
  void* window_data = nullptr;
  int64_t num_windows = 0;
  int64_t num_groups = 0;
  int64_t num_collectives = 0;
  std::map<int, int64_t> num_sends = {};  // by peer
  std::map<int, int64_t> num_recvs = {};  // by peer
  std::set<void*> registered = {};
  std::map<const char*, size_t> windows = {};  // and their bytes
  // Given to no stream yet, for NCCL is not done with the call.
  std::vector<std::shared_ptr<tessera::emulation::NcclLaunch>> waiting = {};
  // Given to a stream, not done.
  std::vector<std::shared_ptr<tessera::emulation::NcclLaunch>> pending = {};
};

namespace tessera::emulation {

// NCCL on emulated GPUs: operations run once every member's stream has come to
// them. A GPU does one at a time, in the order of the calls, so that ranks that
// differ in it get stuck. Reductions are in ascending rank, as those of the
// local backend.
//
// Whatever NCCL would not notice, and no program should do, is reported: calls
// of ranks that do not match, memory or streams that are not the GPU's, uses of
// what is gone, or of what is not done yet.
//
// Used by the host whose turn it is, and by operations.
class NcclNetwork {
 public:
  // LIFETIME: borrows the machine.
  explicit NcclNetwork(Machine& machine) : machine_(machine) {}
  ~NcclNetwork();
  NcclNetwork(const NcclNetwork&) = delete;
  NcclNetwork& operator=(const NcclNetwork&) = delete;

  // What programs may set.
  //
  // Whether NCCL tells ranks of one that aborts, by ncclRemoteError.
  void set_tells_of_aborts(bool tells) { tells_of_aborts_ = tells; }
  // Whether GPUs reach each other's memory.
  void set_has_windows(bool has) { has_windows_ = has; }
  // NCCL finds this error on every ncclComm_t that the GPU has.
  void FailFromOutside(int gpu, ncclResult_t error);
  // Made so far.
  int64_t num_ids() const { return num_ids_; }
  int64_t num_splits() const { return num_splits_; }
  // Blocks of memory that the GPU's ncclComm_ts have registered.
  int64_t num_registered(int gpu) const;
  // How often they have registered any.
  int64_t num_registrations(int gpu) { return registrations_[gpu]; }
  // Memory goes: nobody should have it registered.
  void CheckFree(const void* data);
  // The program of a rank has ended, on this thread: all should be gone.
  void EndProgram(int gpu);

  // What NCCL's functions do, where none of them fails on demand.
  ncclUniqueId NewId();
  ncclResult_t Init(ncclComm_t* comm, int num_ranks, const ncclUniqueId& id,
                    int rank, int gpu, const ncclConfig_t* config);
  ncclResult_t Split(ncclComm_t comm, int color, int key, ncclComm_t* made,
                     const ncclConfig_t* config);
  ncclResult_t GetAsyncError(ncclComm_t comm, ncclResult_t* error);
  ncclResult_t GroupStart();
  ncclResult_t GroupEnd();
  // Makes no group end: the calls so far are dropped.
  void DropGroup();
  ncclResult_t Add(const NcclCall& call);
  ncclResult_t Finalize(ncclComm_t comm);
  ncclResult_t Destroy(ncclComm_t comm);
  ncclResult_t Abort(ncclComm_t comm);
  ncclResult_t Revoke(ncclComm_t comm);
  ncclResult_t Register(ncclComm_t comm, void* data, size_t bytes,
                        void** handle);
  ncclResult_t Deregister(ncclComm_t comm, void* handle);
  ncclResult_t RegisterWindow(ncclComm_t comm, void* data, size_t bytes,
                              ncclWindow_t* window, int flags);

 private:
  // How often the state of an ncclComm_t is looked at until NCCL is done.
  static constexpr int kLooks = 2;

  // True for one that may be used; else a report.
  bool IsUsable(ncclComm_t comm, absl::string_view use);
  // A launch is where its stream, and the GPU, can run nothing but it.
  bool HasArrived(const NcclLaunch& launch) const;
  bool IsReady(const NcclLaunch& launch) const;
  void Run(NcclLaunch& launch);
  void RunMatch(const NcclMatch& match);

  void Report(ncclComm_t comm, absl::string_view problem);
  void CheckMemory(const NcclCall& call);
  // Where the calls of ranks differ: reports it.
  void CheckMatch(const NcclMatch& match, const NcclCall& call);
  void CheckSplit(ncclComm_t comm, const NcclSplit::Part& part);
  // Makes the rank's ncclComm_t of a split to which all have come.
  ncclResult_t FinishSplit(ncclComm_t comm);
  // Gives the rank the window for which all have come.
  void FinishWindow(ncclComm_t comm);
  void CheckRegistration(ncclComm_t comm, void* data, size_t bytes);
  ncclResult_t Join(ncclComm_t* comm, NcclClique& clique, size_t num_ranks,
                    ncclComm joining);
  std::shared_ptr<NcclMatch> MatchOf(const NcclCall& call, size_t* place);
  ncclResult_t Enqueue(const std::shared_ptr<NcclLaunch>& launch);
  ncclResult_t StartWaiting(ncclComm_t comm);
  // Lets what is enqueued come to its end without doing anything.
  void Cancel(ncclComm_t comm);
  void Free(ncclComm_t comm);

  Machine& machine_;
  bool tells_of_aborts_ = false;
  bool has_windows_ = true;
  int64_t num_ids_ = 0;
  int64_t num_splits_ = 0;                     // calls of ranks
  std::map<std::string, NcclClique> cliques_;  // by id
  std::map<int, int64_t> registrations_;       // by GPU
  std::deque<ncclComm> comms_;  // never freed, so that late uses are found
  // By GPU: those that it has not done, in the order of the calls.
  std::map<int, std::deque<std::shared_ptr<NcclLaunch>>> order_;
};

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_NCCL_NETWORK_H_
