#ifndef TESSERA_TESTING_SCHEDULER_H_
#define TESSERA_TESTING_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tessera/base/inline_function.h"
#include "tessera/base/mutex.h"

namespace tessera::testing {

// Hosts, which are threads, and queues of operations, of which one at a time
// does something, picked by a seed among all that could: the same seed gives
// the same run, step by step. Some are picked more often than others; which
// ones, the seed says, too.
//
//   Scheduler scheduler(seed);
//   const int host = scheduler.AddHost("rank 0");
//   std::thread thread([&] {
//     scheduler.Enter(host);
//     const int queue = scheduler.AddQueue("rank 0 'compute'");
//     scheduler.Push(queue, {.name = "copy", .run = [] { ... }});
//     scheduler.Yield();  // the copy may run here, and others may
//     scheduler.Leave();
//   });
//   scheduler.Start();
//   thread.join();
//
// An operation runs when it is at the head of its queue and ready, on whichever
// thread is at hand. It must not block, nor may hosts, but through this.
//
// Between Enter and Leave the calling thread is the one that does something:
// nothing else runs until it yields, blocks or leaves. Calls come from such
// threads only, AddHost and Start aside.
class Scheduler {
 public:
  struct Operation {
    std::string name = "";
    // Whether it may run; null: at once. Depends on nothing but what hosts and
    // operations do.
    std::function<bool()> ready = nullptr;
    InlineFunction<void(), 64> run = nullptr;
  };

  explicit Scheduler(uint64_t seed) : random_(seed) {}

  // Called before Start. Returns the host's number.
  int AddHost(std::string name);
  // Lets the first host enter. REQUIRES: there is one; each will Enter.
  void Start();

  // Blocks until it is this host's turn for the first time.
  void Enter(int host);
  // Others may go first.
  void Yield();
  // Others go first until `condition` holds. `what` says in errors what the
  // host does, "waits for stream 'gather'".
  // ERRORS: failure(), where it never holds; FailedPrecondition inside an
  // operation.
  absl::Status BlockUntil(std::function<bool()> condition, std::string what);
  // This host does nothing any more. Operations still run.
  void Leave();

  // Returns the queue's number.
  int AddQueue(std::string name);
  void Push(int queue, Operation operation);
  // Operations that were pushed, and that are done and destroyed.
  int64_t pushed(int queue) const { return queues_[queue].pushed; }
  int64_t done(int queue) const { return queues_[queue].done; }

  // OK until nothing can go on although something is left: then
  // FailedPrecondition, with what everybody waits for. From then on every
  // operation counts as ready, and hosts go on once no operation is left.
  const absl::Status& failure() const { return failure_; }
  bool in_operation() const { return in_operation_; }

  // What was done, in order: "rank 0", "copy on rank 0 'compute'".
  const std::vector<std::string>& steps() const { return steps_; }

 private:
  struct Host {
    std::string name;
    uint64_t weight;  // how often it is picked
    bool has_left = false;
    std::function<bool()> condition = nullptr;  // null: may go on
    std::string what = "";
  };
  struct Queue {
    std::string name;
    uint64_t weight;
    std::deque<Operation> operations = {};
    int64_t pushed = 0;
    int64_t done = 0;
  };
  // One of both; neither where nothing is left.
  struct Choice {
    int host = -1;
    int queue = -1;
  };

  uint64_t RandomWeight();
  bool IsReady(const Host& host) const;
  bool IsReady(const Queue& queue) const;
  Choice Pick();
  Choice PickAmong(const std::vector<Choice>& choices);
  std::vector<Choice> ReadyOnes() const;
  void FailAsStuck();
  void RunHead(Queue& queue);
  // Runs operations until a host is picked, and returns it; -1 where nothing is
  // left.
  int RunUntilHost();
  void GiveTurn(int host);
  void AwaitTurn(int host);
  void PassOn();

  std::mt19937_64 random_;
  // Queues stay where they are while others are added.
  std::deque<Host> hosts_;
  std::deque<Queue> queues_;
  int running_ = -1;  // host
  bool in_operation_ = false;
  absl::Status failure_;
  std::vector<std::string> steps_;

  // All else is used by the host whose turn it is.
  Mutex mutex_;
  std::map<int, CondVar> turn_came_ ABSL_GUARDED_BY(mutex_);  // by host
  int turn_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTING_SCHEDULER_H_
