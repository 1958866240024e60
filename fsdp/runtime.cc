#include "tessera/fsdp/runtime.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

absl::Status StatusOf(const Stream& stream) {
  const absl::Status status = stream.status();
  if (status.ok()) return status;
  return Prefixed(absl::StrCat("fsdp: stream '", stream.name(), "': "), status);
}

// True of what one rank meets with alone, or has been told by others.
bool IsOfOneRank(const absl::Status& error) {
  return absl::IsResourceExhausted(error) || absl::IsAborted(error) ||
         absl::IsDeadlineExceeded(error);
}

}  // namespace

Runtime::Runtime(FsdpOptions options_in, DataParallelAxes default_axes_in,
                 Communicator& world, Stream& compute_in)
    : options(std::move(options_in)),
      default_axes(std::move(default_axes_in)),
      rank(world.rank()),
      comms(world),
      compute(compute_in) {}

absl::StatusOr<Stream*> Runtime::AddStream(absl::string_view name) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                           compute.device().NewStream(name));
  own_streams.push_back(std::move(stream));
  return own_streams.back().get();
}

absl::Status Runtime::CreateStreams() {
  if (options.overlap.streams == CommunicationStreams::kShared) {
    TESSERA_ASSIGN_OR_RETURN(gather, AddStream("communicate"));
    reduce = gather;
    finalize = gather;
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(gather, AddStream("gather"));
  TESSERA_ASSIGN_OR_RETURN(reduce, AddStream("reduce"));
  TESSERA_ASSIGN_OR_RETURN(finalize, AddStream("finalize"));
  return absl::OkStatus();
}

std::vector<Stream*> Runtime::Streams() const {
  std::vector<Stream*> streams = {&compute};
  for (const auto& stream : own_streams) streams.push_back(stream.get());
  return streams;
}

bool Runtime::Keep(const absl::Status& error) {
  if (error.ok() || !error_.ok()) return false;
  error_ = error;
  options.logger.Error(
      absl::StrCat("rank ", rank, ": ", std::string(error.message())));
  return true;
}

void Runtime::Fail(const absl::Status& error) {
  if (Keep(error) && IsOfOneRank(error)) comms.Abort(error);
}

void Runtime::FailAlone(const absl::Status& error) {
  if (Keep(error)) comms.Abort(error);
}

absl::Status Runtime::status() const {
  if (!error_.ok()) return error_;
  TESSERA_RETURN_IF_ERROR(StatusOf(compute));
  for (const auto& stream : own_streams) {
    TESSERA_RETURN_IF_ERROR(StatusOf(*stream));
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
