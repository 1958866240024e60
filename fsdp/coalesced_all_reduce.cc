#include "tessera/fsdp/coalesced_all_reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/stable_hash.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/device.h"
#include "tessera/fsdp/agreement.h"
#include "tessera/fsdp/chunk_plan.h"

namespace tessera {
namespace {

using internal::Chunk;
using internal::ChunkPiece;

int64_t ChunkBytesFromEnvironment(const Logger& logger) {
  const char* const variable = std::getenv(kChunkBytesVariable);
  if (variable == nullptr) return kDefaultChunkBytes;
  int64_t bytes = 0;
  if (absl::SimpleAtoi(variable, &bytes) && bytes > 0) return bytes;
  logger.Warning(absl::StrCat("coalesced all-reduce: want ",
                              kChunkBytesVariable,
                              " a positive number of bytes, found '", variable,
                              "', taken as ", kDefaultChunkBytes));
  return kDefaultChunkBytes;
}

std::string SizeText(int64_t bytes) {
  constexpr int64_t kMiB = 1 << 20;
  return bytes % kMiB == 0 ? absl::StrCat(bytes / kMiB, " MiB")
                           : absl::StrCat(bytes, " bytes");
}

// One all-reduce: flat views of memory that is contiguous, in order. They are
// not empty, and no two that follow each other are neighbours.
struct Call {
  ReduceOp op;
  std::vector<TensorView> views;

  DType dtype() const { return views.front().dtype(); }
  int64_t num_elements() const {
    int64_t elements = 0;
    for (const TensorView& view : views) elements += view.num_elements();
    return elements;
  }
  // Bytes of memory to pack it in; none where it is reduced where it lies.
  int64_t PackedBytes() const {
    return views.size() == 1 ? 0 : num_elements() * SizeOf(dtype());
  }
};

bool AreNeighbours(const TensorView& first, const TensorView& second) {
  return static_cast<std::byte*>(first.data()) + first.num_bytes() ==
         second.data();
}

// The memory of a chunk of `tensors`.
std::vector<TensorView> ViewsOf(const Chunk& chunk,
                                absl::Span<const TensorView> tensors) {
  std::vector<TensorView> views;
  for (const ChunkPiece& piece : chunk) {
    const TensorView view =
        tensors[piece.tensor].Flattened().Slice(0, piece.elements);
    if (!views.empty() && AreNeighbours(views.back(), view)) {
      views.back() =
          TensorView::Flat(views.back().data(), view.dtype(),
                           views.back().num_elements() + view.num_elements());
    } else {
      views.push_back(view);
    }
  }
  return views;
}

// Appends the calls for tensors of one dtype, of which there are some.
void AppendCallsFor(ReduceOp op, absl::Span<const TensorView> tensors,
                    int64_t chunk_bytes, std::vector<Call>& calls) {
  std::vector<int64_t> sizes;
  for (const TensorView& view : tensors) sizes.push_back(view.num_elements());
  const int64_t chunk_elements =
      std::max<int64_t>(1, chunk_bytes / SizeOf(tensors.front().dtype()));
  for (const Chunk& chunk : internal::PlanChunks(sizes, chunk_elements)) {
    calls.push_back({op, ViewsOf(chunk, tensors)});
  }
}

void AppendCalls(ReduceOp op, absl::Span<const CoalescedTensor> tensors,
                 int64_t chunk_bytes, std::vector<Call>& calls) {
  for (DType dtype : kAllDTypes) {
    std::vector<TensorView> views;
    for (const CoalescedTensor& tensor : tensors) {
      if (tensor.local.dtype() == dtype) views.push_back(tensor.local);
    }
    if (!views.empty()) AppendCallsFor(op, views, chunk_bytes, calls);
  }
}

int64_t PackedBytesOf(absl::Span<const Call> calls) {
  int64_t bytes = 0;
  for (const Call& call : calls) bytes = std::max(bytes, call.PackedBytes());
  return bytes;
}

// Packs, reduces and unpacks a call in `memory`, or reduces it where it lies.
absl::Status Issue(const Call& call, Communicator& group, void* memory) {
  if (call.PackedBytes() == 0) {
    return group.AllReduce(call.op, call.views.front(), call.views.front());
  }
  Stream& stream = group.stream();
  Kernels& kernels = stream.device().kernels();
  const TensorView packed =
      TensorView::Flat(memory, call.dtype(), call.num_elements());
  std::vector<TensorView> parts;
  int64_t begin = 0;
  for (const TensorView& view : call.views) {
    parts.push_back(packed.Slice(0, {begin, begin + view.num_elements()}));
    begin += view.num_elements();
    TESSERA_RETURN_IF_ERROR(kernels.Copy(stream, parts.back(), view));
  }
  TESSERA_RETURN_IF_ERROR(group.AllReduce(call.op, packed, packed));
  for (size_t i = 0; i < parts.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(kernels.Copy(stream, call.views[i], parts[i]));
  }
  return absl::OkStatus();
}

// Issues all calls; they use the memory one after the other.
absl::Status IssueAll(absl::Span<const Call> calls, Communicator& group,
                      void* memory) {
  for (const Call& call : calls) {
    const absl::Status status = Issue(call, group, memory);
    if (status.ok()) continue;
    group.Abort(status);
    group.stream()
        .Launch({.name = "fail"}, [status] { return status; })
        .IgnoreError();
    return status;
  }
  return absl::OkStatus();
}

// One line per tensor.
void AppendEntries(ReduceOp op, absl::Span<const CoalescedTensor> tensors,
                   std::string& text) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CoalescedTensor& tensor = tensors[i];
    absl::StrAppend(&text, ReduceOpName(op), " ", i, ": ",
                    tensor.local.meta().ToString());
    if (tensor.layout.has_value()) {
      absl::StrAppend(&text, " of ", tensor.layout->ToString());
    }
    absl::StrAppend(&text, "\n");
  }
}

absl::Status CheckLayout(const Layout& layout, const DeviceMesh& mesh, int axis,
                         ReduceOp op) {
  if (layout.mesh() != mesh) {
    return absl::InvalidArgumentError(
        absl::StrCat("is on mesh '", layout.mesh().ToString(), "', want '",
                     mesh.ToString(), "'"));
  }
  const Placement& found = layout.placement(axis);
  const Placement wanted = Placement::Partial(op);
  if (found.is_replicate() || found == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(layout.ToString(), " is ", found.ToString(), " along axis '",
                   mesh.axis(axis).name, "', want R or ", wanted.ToString()));
}

absl::Status CheckTensor(const CoalescedTensor& tensor, const DeviceMesh& mesh,
                         int axis, ReduceOp op) {
  if (!tensor.local.IsContiguous()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is ", tensor.local.ToString(), ", want a contiguous view"));
  }
  if (op == ReduceOp::kAvg && !IsFloating(tensor.local.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is ", tensor.local.ToString(), ", want a floating dtype"));
  }
  if (!tensor.layout.has_value()) return absl::OkStatus();
  return CheckLayout(*tensor.layout, mesh, axis, op);
}

}  // namespace

absl::StatusOr<CoalescedAllReduce> CoalescedAllReduce::Create(DeviceMesh mesh,
                                                              CommSet& comms,
                                                              Options options) {
  const int64_t chunk_bytes = options.max_chunk_bytes.has_value()
                                  ? *options.max_chunk_bytes
                                  : ChunkBytesFromEnvironment(options.logger);
  if (chunk_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("coalesced all-reduce: want at least 1 byte in a chunk, "
                     "found ",
                     chunk_bytes));
  }
  return CoalescedAllReduce(std::move(mesh), comms, chunk_bytes,
                            std::move(options.logger));
}

absl::Status CoalescedAllReduce::Run(absl::string_view axis,
                                     absl::Span<const CoalescedTensor> sums,
                                     absl::Span<const CoalescedTensor> averages,
                                     Stream& stream, Workspace workspace) {
  TESSERA_ASSIGN_OR_RETURN(const int index, mesh_.FindAxis(axis));
  TESSERA_RETURN_IF_ERROR(Check(index, ReduceOp::kSum, sums));
  TESSERA_RETURN_IF_ERROR(Check(index, ReduceOp::kAvg, averages));
  if (mesh_.axis(index).size == 1) return absl::OkStatus();

  std::vector<Call> calls;
  AppendCalls(ReduceOp::kSum, sums, chunk_bytes_, calls);
  AppendCalls(ReduceOp::kAvg, averages, chunk_bytes_, calls);
  const int64_t packed_bytes = PackedBytesOf(calls);
  const bool has_workspace = workspace.data != nullptr;
  if (has_workspace && workspace.bytes < packed_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("coalesced all-reduce: on rank ", comms_->rank(),
                     " want a workspace of ", packed_bytes, " bytes, found ",
                     workspace.bytes));
  }
  TESSERA_ASSIGN_OR_RETURN(Communicator * group,
                           comms_->Get(mesh_, {index}, stream));
  TESSERA_RETURN_IF_ERROR(Agree(*group, sums, averages));
  if (!sums.empty()) LogFirstUse(axis, ReduceOp::kSum);
  if (!averages.empty()) LogFirstUse(axis, ReduceOp::kAvg);
  const auto issue = [&](Workspace memory) {
    return IssueAll(calls, *group, memory.data);
  };
  return has_workspace ? issue(workspace)
                       : internal::WithWorkspace(packed_bytes, stream, issue,
                                                 kCoalescedChunkTag);
}

absl::Status CoalescedAllReduce::Check(
    int axis, ReduceOp op, absl::Span<const CoalescedTensor> tensors) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const absl::Status status = CheckTensor(tensors[i], mesh_, axis, op);
    if (status.ok()) continue;
    return absl::Status(
        status.code(),
        absl::StrCat("coalesced all-reduce: on rank ", comms_->rank(), " ",
                     ReduceOpName(op), " ", i, " ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status CoalescedAllReduce::Agree(
    Communicator& group, absl::Span<const CoalescedTensor> sums,
    absl::Span<const CoalescedTensor> averages) {
  std::string text = absl::StrCat("axis '", group.name(), "' in chunks of ",
                                  SizeText(chunk_bytes_), "\n");
  AppendEntries(ReduceOp::kSum, sums, text);
  AppendEntries(ReduceOp::kAvg, averages, text);
  const uint64_t fingerprint = internal::StableHash(text);
  if (agreed_.contains(fingerprint)) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(internal::CompareEntries(
      group,
      absl::StrCat("coalesced all-reduce: ranks of '", group.name(),
                   "' give different pieces"),
      text));
  agreed_.insert(fingerprint);
  return absl::OkStatus();
}

void CoalescedAllReduce::LogFirstUse(absl::string_view axis, ReduceOp op) {
  if (!logged_.emplace(axis, op).second) return;
  logger_.Info(absl::StrCat("coalesced all-reduce axis=", axis,
                            " op=", ReduceOpName(op),
                            " chunk=", SizeText(chunk_bytes_)));
}

}  // namespace tessera
