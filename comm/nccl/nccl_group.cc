#include "tessera/comm/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/calls.h"
#include "tessera/comm/nccl/nccl_launch.h"
#include "tessera/device/device.h"

namespace tessera::internal {
namespace {

// Memory of the host that goes to the device and back, where it is looked at
// with the elements that NCCL knows.
class Exchanged {
 public:
  static absl::StatusOr<Exchanged> Create(CudaStream& stream, int64_t bytes) {
    // At least one byte: ranks may have nothing to say.
    const int64_t room = std::max<int64_t>(bytes, 1);
    TESSERA_ASSIGN_OR_RETURN(HostMemory host,
                             stream.device().AllocateHost(room));
    TESSERA_ASSIGN_OR_RETURN(
        Buffer device, stream.device().Allocate(room, "nccl staging", &stream));
    return Exchanged(stream, std::move(host), std::move(device));
  }
  Exchanged(Exchanged&&) = default;
  Exchanged& operator=(Exchanged&&) = delete;
  ~Exchanged() {
    if (device_.empty()) return;          // moved from
    stream_.Synchronize().IgnoreError();  // who wants to know has asked
    device_.ResetAfter(stream_);
  }

  char* host() { return static_cast<char*>(host_.data()); }
  // On the device.
  TensorView View(DType dtype, int64_t elements) const {
    return TensorView::Flat(device_.data(), dtype, elements);
  }
  absl::Status ToDevice(const TensorView& view) {
    return stream_.device().kernels().CopyFromHost(stream_, view, host_.data());
  }
  // Waits for it.
  absl::Status ToHost(const TensorView& view) {
    TESSERA_RETURN_IF_ERROR(
        stream_.device().kernels().CopyToHost(stream_, host_.data(), view));
    return stream_.Synchronize();
  }

 private:
  Exchanged(CudaStream& stream, HostMemory host, Buffer device)
      : stream_(stream), host_(std::move(host)), device_(std::move(device)) {}

  CudaStream& stream_;
  HostMemory host_;
  Buffer device_;
};

std::vector<int> RanksBelow(int end) {
  std::vector<int> ranks(end);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

// NcclContext.

NcclContext::~NcclContext() {
  MutexLock lock(mutex_);
  for (std::shared_ptr<NcclComm>& comm : comms_) comm.reset();
}

void NcclContext::Add(std::shared_ptr<NcclComm> comm) {
  MutexLock lock(mutex_);
  comms_.push_back(std::move(comm));
}

absl::Status NcclContext::Check() {
  std::vector<std::shared_ptr<NcclComm>> comms;
  {
    MutexLock lock(mutex_);
    comms = comms_;
  }
  for (const std::shared_ptr<NcclComm>& comm : comms) {
    TESSERA_RETURN_IF_ERROR(comm->Check());
  }
  return absl::OkStatus();
}

// NcclGroup.

NcclGroup::NcclGroup(std::shared_ptr<NcclContext> context, std::string name,
                     std::vector<int> members, int rank)
    : context_(std::move(context)),
      name_(std::move(name)),
      members_(std::move(members)),
      rank_(rank) {}

NcclComm::Options NcclGroup::CommOptions() const {
  return {.ordinal = context_->device().ordinal(),
          .name = name_,
          .rank = rank_,
          .size = size(),
          .timeout = context_->options().timeout};
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::Create(
    std::shared_ptr<NcclContext> context, const NcclId& id, std::string name,
    std::vector<int> members, int rank) {
  std::shared_ptr<NcclGroup> group(new NcclGroup(
      std::move(context), std::move(name), std::move(members), rank));
  TESSERA_RETURN_IF_ERROR(group->Init(id));
  return group;
}

absl::Status NcclGroup::Init(const NcclId& id) {
  if (size() == 1) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(comm_, NcclComm::Create(id, CommOptions()));
  context_->Add(comm_);
  return absl::OkStatus();
}

std::shared_ptr<NcclGroup> NcclGroup::Borrow(
    std::shared_ptr<NcclContext> context, ncclComm_t comm, std::string name,
    int size, int rank) {
  std::shared_ptr<NcclGroup> group(new NcclGroup(
      std::move(context), std::move(name), RanksBelow(size), rank));
  group->comm_ = NcclComm::Borrow(comm, group->CommOptions());
  group->context_->Add(group->comm_);
  return group;
}

void NcclGroup::Watch(CudaStream& stream) const {
  if (comm_ != nullptr) stream.AddMonitor(comm_);
}

absl::Status NcclGroup::Issue(CudaStream& stream,
                              absl::Span<const Collective> calls,
                              int64_t sequence) {
  TESSERA_RETURN_IF_ERROR(comm_->status());
  const absl::Status checked = comm_->Check();
  if (!checked.ok()) stream.Fail(checked);
  TESSERA_RETURN_IF_ERROR(stream.status());

  NcclLaunch launch(stream, rank_, size());
  std::vector<MemoryRange> reads;
  std::vector<MemoryRange> writes;
  for (const Collective& call : calls) {
    TESSERA_RETURN_IF_ERROR(launch.Add(call));
    AppendRanges(call, reads, writes);
  }
  TESSERA_RETURN_IF_ERROR(launch.CopyBefore());
  if (!launch.empty()) {
    TESSERA_RETURN_IF_ERROR(RegisterBlocks(launch.Memory()));
    const NcclComm::Moment moment = {CollectiveKindName(calls.front().kind),
                                     sequence};
    const auto handle = static_cast<cudaStream_t>(stream.native_handle());
    TESSERA_RETURN_IF_ERROR(stream.Launch(
        {.name = moment.what,
         .reads = reads,
         .writes = writes,
         .communicator = name_},
        [&] {
          return comm_->Launch(handle, moment, [&](ncclComm_t comm) {
            return launch.Call(comm);
          });
        }));
  }
  return launch.CopyAfter();
}

absl::Status NcclGroup::RegisterBlocks(absl::Span<const MemoryRange> memory) {
  const NcclAllocator* const allocator = context_->allocator();
  if (allocator == nullptr) return absl::OkStatus();
  for (const MemoryRange& range : memory) {
    const MemoryRange block = allocator->BlockOf(range.begin);
    if (block.begin == nullptr) continue;
    TESSERA_RETURN_IF_ERROR(
        comm_->Register(const_cast<void*>(block.begin), block.bytes));
  }
  return absl::OkStatus();
}

void NcclGroup::SetTimeout(std::chrono::milliseconds timeout) const {
  if (comm_ != nullptr) comm_->SetTimeout(timeout);
}

void NcclGroup::Abort(absl::string_view reason) {
  if (comm_ != nullptr) comm_->Abort(reason);
}

// What the host exchanges.

absl::StatusOr<CudaStream*> NcclGroup::HostStream() {
  TESSERA_RETURN_IF_ERROR(comm_->status());
  if (host_stream_ == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(
        host_stream_,
        context_->device().NewStream(absl::StrCat("host of ", name_)));
    Watch(static_cast<CudaStream&>(*host_stream_));
  }
  return static_cast<CudaStream*>(host_stream_.get());
}

absl::StatusOr<std::vector<std::string>> NcclGroup::HostAllGather(
    absl::string_view value) {
  if (size() == 1) return std::vector<std::string>{std::string(value)};
  const auto bytes = static_cast<int64_t>(value.size());
  const std::vector<int64_t> one_number(size(), sizeof(bytes));
  TESSERA_ASSIGN_OR_RETURN(
      const std::string numbers,
      GatherBytes(absl::string_view(reinterpret_cast<const char*>(&bytes),
                                    sizeof(bytes)),
                  one_number));
  std::vector<int64_t> sizes(size());
  std::memcpy(sizes.data(), numbers.data(), numbers.size());
  TESSERA_ASSIGN_OR_RETURN(const std::string all, GatherBytes(value, sizes));
  std::vector<std::string> values;
  size_t begin = 0;
  for (int64_t given : sizes) {
    values.push_back(all.substr(begin, given));
    begin += given;
  }
  return values;
}

// Each member's bytes take up whole elements.
absl::StatusOr<std::string> NcclGroup::GatherBytes(
    absl::string_view value, absl::Span<const int64_t> sizes) {
  constexpr int64_t kBytes = SizeOf(DType::kI32);
  TESSERA_ASSIGN_OR_RETURN(CudaStream* const stream, HostStream());
  std::vector<int64_t> elements;
  for (int64_t bytes : sizes) elements.push_back((bytes + kBytes - 1) / kBytes);
  const int64_t all =
      std::accumulate(elements.begin(), elements.end(), int64_t{0});
  TESSERA_ASSIGN_OR_RETURN(Exchanged gathered,
                           Exchanged::Create(*stream, all * kBytes));
  TESSERA_ASSIGN_OR_RETURN(const ExtentSplit split,
                           ExtentSplit::Explicit(elements));
  Collective call;
  call.kind = CollectiveKind::kAllGather;
  call.recv = gathered.View(DType::kI32, all);
  call.recv_split = split;
  call.send = call.RecvPiece(rank_, size());
  std::memcpy(gathered.host(), value.data(), value.size());
  TESSERA_RETURN_IF_ERROR(gathered.ToDevice(call.send));
  TESSERA_RETURN_IF_ERROR(Issue(*stream, {&call, 1}, num_host_calls_++));
  TESSERA_RETURN_IF_ERROR(gathered.ToHost(call.recv));
  std::string result;
  const char* begin = gathered.host();
  for (int i = 0; i < size(); ++i) {
    result.append(begin, sizes[i]);
    begin += elements[i] * kBytes;
  }
  return result;
}

// Groups.

std::shared_ptr<NcclGroup> NcclGroup::NewGroup(absl::Span<const int> members,
                                               absl::string_view name) const {
  std::vector<int> ranks;
  int own = 0;
  for (int member : members) {
    if (member == rank_) own = static_cast<int>(ranks.size());
    ranks.push_back(members_[member]);
  }
  return std::shared_ptr<NcclGroup>(
      new NcclGroup(context_, std::string(name), std::move(ranks), own));
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::MakeGroup(
    absl::Span<const int> members, absl::string_view name) {
  if (CanSplit() && members.size() == members_.size()) {
    return Split(members, name);
  }
  NcclId id;
  if (members.size() > 1) {
    TESSERA_ASSIGN_OR_RETURN(id, ShareId(members));
  }
  std::shared_ptr<NcclGroup> group = NewGroup(members, name);
  TESSERA_RETURN_IF_ERROR(group->Init(id));
  return group;
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::Partition(
    absl::Span<const int> members, absl::string_view name) {
  if (CanSplit()) return Split(members, name);
  if (members.empty()) return nullptr;
  return MakeGroup(members, name);
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::Split(
    absl::Span<const int> members, absl::string_view name) {
  std::shared_ptr<NcclGroup> group = NewGroup(members, name);
  // Groups are told apart by their least members.
  const int color = members.size() > 1
                        ? *std::min_element(members.begin(), members.end())
                        : NCCL_SPLIT_NOCOLOR;
  TESSERA_ASSIGN_OR_RETURN(
      group->comm_, comm_->Split(color, group->rank_, group->CommOptions()));
  if (members.empty()) return nullptr;
  if (group->comm_ != nullptr) context_->Add(group->comm_);
  return group;
}

absl::StatusOr<NcclId> NcclGroup::ShareId(absl::Span<const int> members) {
  NcclId id;
  const bool is_first = members[0] == rank_;
  if (is_first) {
    TESSERA_ASSIGN_OR_RETURN(id, NewNcclId());
  }
  TESSERA_ASSIGN_OR_RETURN(CudaStream* const stream, HostStream());
  TESSERA_ASSIGN_OR_RETURN(Exchanged shared,
                           Exchanged::Create(*stream, sizeof(id.bytes)));
  const TensorView view =
      shared.View(DType::kI32, sizeof(id.bytes) / SizeOf(DType::kI32));
  std::vector<Transfer> transfers;
  for (int member : members) {
    if (is_first && member != rank_) transfers.push_back({member, view});
  }
  if (!is_first) transfers.push_back({members[0], view});
  Collective call;
  call.kind = CollectiveKind::kSendRecv;
  (is_first ? call.sends : call.recvs) = transfers;

  std::memcpy(shared.host(), id.bytes.data(), sizeof(id.bytes));
  TESSERA_RETURN_IF_ERROR(shared.ToDevice(view));
  TESSERA_RETURN_IF_ERROR(Issue(*stream, {&call, 1}, num_host_calls_++));
  TESSERA_RETURN_IF_ERROR(shared.ToHost(view));
  std::memcpy(id.bytes.data(), shared.host(), sizeof(id.bytes));
  return id;
}

}  // namespace tessera::internal
