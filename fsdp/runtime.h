#ifndef TESSERA_FSDP_RUNTIME_H_
#define TESSERA_FSDP_RUNTIME_H_

#include <memory>
#include <optional>
#include <vector>

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

  // Remembers the first error, and logs it.
  void Fail(const absl::Status& error);
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

  bool prepare_called = false;
  bool prepared = false;                   // and it succeeded
  std::optional<bool> microbatch_is_last;  // of the open microbatch

  CommSet comms;
  Stream& compute;
  std::unique_ptr<Stream> gather;
  std::unique_ptr<Stream> reduce;
  std::unique_ptr<Stream> finalize;

 private:
  void FailHook(const Unit& unit, absl::string_view hook,
                const absl::Status& status);

  absl::Status error_;
};

// `status` with words before its message; OK stays OK.
absl::Status Prefixed(absl::string_view prefix, const absl::Status& status);

}  // namespace tessera::internal

#endif  // TESSERA_FSDP_RUNTIME_H_
