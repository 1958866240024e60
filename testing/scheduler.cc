#include "tessera/testing/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::testing {

uint64_t Scheduler::RandomWeight() { return uint64_t{1} << (random_() % 6); }

int Scheduler::AddHost(std::string name) {
  hosts_.push_back({.name = std::move(name), .weight = RandomWeight()});
  return static_cast<int>(hosts_.size()) - 1;
}

int Scheduler::AddQueue(std::string name) {
  queues_.push_back({.name = std::move(name), .weight = RandomWeight()});
  return static_cast<int>(queues_.size()) - 1;
}

void Scheduler::Push(int queue, Operation operation) {
  queues_[queue].operations.push_back(std::move(operation));
  ++queues_[queue].pushed;
}

// Turns.

void Scheduler::Start() { GiveTurn(RunUntilHost()); }

void Scheduler::Enter(int host) { AwaitTurn(host); }

void Scheduler::GiveTurn(int host) {
  steps_.push_back(hosts_[host].name);
  CondVar* came = nullptr;
  {
    MutexLock lock(mutex_);
    turn_ = host;
    came = &turn_came_[host];
  }
  came->NotifyOne();  // it need not wait for the lock then
}

void Scheduler::AwaitTurn(int host) {
  {
    MutexLock lock(mutex_);
    while (turn_ != host) turn_came_[host].Wait(mutex_);
  }
  running_ = host;
}

void Scheduler::Yield() {
  if (!in_operation_) PassOn();
}

absl::Status Scheduler::BlockUntil(std::function<bool()> condition,
                                   std::string what) {
  if (in_operation_) {
    return absl::FailedPreconditionError(
        absl::StrCat("testing: an operation ", what));
  }
  Host& host = hosts_[running_];
  host.condition = std::move(condition);
  host.what = std::move(what);
  PassOn();
  const bool holds = host.condition();
  host.condition = nullptr;
  return holds ? absl::OkStatus() : failure_;
}

void Scheduler::PassOn() {
  const int self = running_;
  const int next = RunUntilHost();
  if (next == self) return;
  GiveTurn(next);
  AwaitTurn(self);
}

void Scheduler::Leave() {
  hosts_[running_].has_left = true;
  const int next = RunUntilHost();
  if (next >= 0) GiveTurn(next);
}

int Scheduler::RunUntilHost() {
  Choice choice = Pick();
  for (; choice.queue >= 0; choice = Pick()) RunHead(queues_[choice.queue]);
  return choice.host;
}

void Scheduler::RunHead(Queue& queue) {
  in_operation_ = true;
  {
    Operation operation = std::move(queue.operations.front());
    queue.operations.pop_front();
    steps_.push_back(absl::StrCat(operation.name, " on ", queue.name));
    operation.run();
  }
  // The operation is destroyed: what waits for it may count on that.
  ++queue.done;
  in_operation_ = false;
}

// Choices.

bool Scheduler::IsReady(const Host& host) const {
  return !host.has_left && (host.condition == nullptr || host.condition());
}

bool Scheduler::IsReady(const Queue& queue) const {
  if (queue.operations.empty()) return false;
  const Operation& head = queue.operations.front();
  return !failure_.ok() || head.ready == nullptr || head.ready();
}

std::vector<Scheduler::Choice> Scheduler::ReadyOnes() const {
  std::vector<Choice> ready;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (IsReady(hosts_[i])) ready.push_back({.host = static_cast<int>(i)});
  }
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (IsReady(queues_[i])) ready.push_back({.queue = static_cast<int>(i)});
  }
  return ready;
}

Scheduler::Choice Scheduler::Pick() {
  const auto stuck = [&] {
    return std::any_of(hosts_.begin(), hosts_.end(),
                       [](const Host& host) { return !host.has_left; }) ||
           std::any_of(queues_.begin(), queues_.end(), [](const Queue& queue) {
             return !queue.operations.empty();
           });
  };
  std::vector<Choice> ready = ReadyOnes();
  if (ready.empty() && failure_.ok() && stuck()) {
    FailAsStuck();
    ready = ReadyOnes();
  }
  if (!ready.empty()) return PickAmong(ready);
  // Hosts that wait for what will not be.
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (!hosts_[i].has_left) ready.push_back({.host = static_cast<int>(i)});
  }
  return ready.empty() ? Choice() : PickAmong(ready);
}

Scheduler::Choice Scheduler::PickAmong(const std::vector<Choice>& choices) {
  const auto weight = [&](const Choice& choice) {
    return choice.host >= 0 ? hosts_[choice.host].weight
                            : queues_[choice.queue].weight;
  };
  uint64_t total = 0;
  for (const Choice& choice : choices) total += weight(choice);
  uint64_t left = random_() % total;
  for (const Choice& choice : choices) {
    if (left < weight(choice)) return choice;
    left -= weight(choice);
  }
  return choices.back();
}

void Scheduler::FailAsStuck() {
  std::string lines;
  for (const Host& host : hosts_) {
    if (!host.has_left) {
      absl::StrAppend(&lines, "\n  ", host.name, " ", host.what);
    }
  }
  for (const Queue& queue : queues_) {
    if (!queue.operations.empty()) {
      absl::StrAppend(&lines, "\n  ", queue.name, " is at ",
                      queue.operations.front().name);
    }
  }
  failure_ = absl::FailedPreconditionError(
      absl::StrCat("testing: nothing can go on:", lines));
}

}  // namespace tessera::testing
