#include "tests/emulation/nccl_call.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tessera/device/cpu/elementwise.h"
#include "tests/emulation/nccl_network.h"

namespace tessera::emulation {
namespace {

using internal::Touched;

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

std::string Signature(const NcclCall& call) {
  std::string text =
      absl::StrCat(IsMessage(call) ? "a message" : NameOf(call.function),
                   " of ", call.count, " of type ", call.type);
  if (IsReduction(call)) absl::StrAppend(&text, " by op ", call.op);
  if (HasRoot(call)) absl::StrAppend(&text, " at root ", call.peer);
  return text;
}

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

void RunTogether(const std::vector<NcclCall>& calls) {
  const NcclCall& first = calls[0];
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

}  // namespace tessera::emulation
