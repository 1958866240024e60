#ifndef TESSERA_FSDP_RUNTIME_H_
#define TESSERA_FSDP_RUNTIME_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/device.h"
#include "tessera/fsdp/data_parallel_axes.h"
#include "tessera/fsdp/gather_order.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/slots.h"
#include "tessera/fsdp/unit.h"

namespace tessera::internal {

// What the units of one context share. Members are destroyed from the last to
// the first: the streams come to rest before the memory that they use goes.
class Runtime {
 public:
  Runtime(FsdpOptions options, DataParallelAxes default_axes,
          Communicator& world, Stream& compute);

  // Makes the streams that communicate.
  absl::Status CreateStreams();

  // The compute stream and those that communicate, each once.
  std::vector<Stream*> Streams() const;

  // Remembers the first error, and logs it. Where other ranks do not meet with
  // it themselves, their waits for this one end as well.
  void Fail(const absl::Status& error);
  // The same for what this rank may have met with alone, such as an error of a
  // function of the caller's: the waits of others end whatever the code.
  void FailAlone(const absl::Status& error);
  // The first error of a hook or a stream so far.
  absl::Status status() const;

  // Runs the body of a hook unless there is an error already, and keeps its
  // error, with unit and hook before the message.
  template <typename Body>
  void RunHook(const Unit& unit, absl::string_view hook, Body body) {
    if (absl::Status error = status(); !error.ok()) {
      Fail(error);
      return;
    }
    FailHook(unit, hook, body());
  }

  const FsdpOptions options;
  const DataParallelAxes default_axes;  // of units that do not say
  const int rank;

  std::vector<std::unique_ptr<Unit>> units;
  SlotPool weight_slots;
  SlotPool gradient_slots;
  GatherOrder forward_order;
  GatherOrder backward_order;
  // The units that may follow the one that began last: what is gathered for
  // them stays.
  absl::InlinedVector<int, 4> expected;

  bool prepare_called = false;
  bool prepared = false;  // and it succeeded
  double loss_scale = 1.0;
  std::optional<bool> microbatch_is_last;  // of the open microbatch

  CommSet comms;
  Stream& compute;
  // Those that communicate: one for each purpose, or one that serves all.
  std::vector<std::unique_ptr<Stream>> own_streams;
  Stream* gather = nullptr;
  Stream* reduce = nullptr;
  Stream* finalize = nullptr;

 private:
  absl::StatusOr<Stream*> AddStream(absl::string_view name);
  // Remembers and logs an error. False where it is none, or not the first.
  bool Keep(const absl::Status& error);
  void FailHook(const Unit& unit, absl::string_view hook,
                const absl::Status& status);

  absl::Status error_;
};

// `status` with words before its message; OK stays OK.
absl::Status Prefixed(absl::string_view prefix, const absl::Status& status);

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_RUNTIME_H_
