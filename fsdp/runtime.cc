#include "tessera/fsdp/runtime.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::internal {

Runtime::Runtime(FsdpOptions options_in, DataParallelAxes default_axes_in,
                 Communicator& world, Stream& compute_in)
    : options(std::move(options_in)),
      default_axes(std::move(default_axes_in)),
      rank(world.rank()),
      comms(world),
      compute(compute_in) {}

void Runtime::Fail(const absl::Status& error) {
  if (error.ok() || !error_.ok()) return;
  error_ = error;
  options.logger.Error(
      absl::StrCat("rank ", rank, ": ", std::string(error.message())));
}

absl::Status Runtime::status() const {
  if (!error_.ok()) return error_;
  const Stream* const streams[] = {&compute, gather.get(), reduce.get(),
                                   finalize.get()};
  for (const Stream* stream : streams) {
    if (stream == nullptr) continue;
    if (absl::Status error = stream->status(); !error.ok()) {
      return Prefixed(absl::StrCat("fsdp: stream '", stream->name(), "': "),
                      error);
    }
  }
  return absl::OkStatus();
}

void Runtime::FailHook(const Unit& unit, absl::string_view hook,
                       const absl::Status& status) {
  Fail(Prefixed(absl::StrCat("fsdp: unit '", unit.name(), "' ", hook, ": "),
                status));
}

absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

}  // namespace tessera::internal
