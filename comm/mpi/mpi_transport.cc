#include "tessera/comm/mpi/mpi_transport.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"

namespace tessera::internal {
namespace {

constexpr int kChannels = 4;

// How long what cannot be taken back may take to arrive.
constexpr std::chrono::milliseconds kGrace{200};

absl::Status CheckOptions(const MpiWorld::Options& options) {
  if (options.max_message_bytes < 1 || options.max_message_bytes > INT_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: want max_message_bytes in [1, 2^31), found ",
                     options.max_message_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckComm(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) {
    return absl::InvalidArgumentError("comm: the MPI communicator is null");
  }
  int between_groups = 0;
  TESSERA_RETURN_IF_ERROR(MpiStatus(
      "MPI_Comm_test_inter", MPI_Comm_test_inter(comm, &between_groups)));
  if (!between_groups) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "comm: want an MPI communicator within one group, found one between two");
}

// MPI, of which there is one for the process, may write to it until it ends.
void KeepForever(MpiBatch::Owner memory) {
  static Mutex& mutex = *new Mutex;
  static auto& kept = *new std::vector<MpiBatch::Owner>;
  MutexLock lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace

absl::Status MpiStatus(absl::string_view function, int code) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return absl::InternalError(
      absl::StrCat("comm: ", function, ": ", absl::string_view(text, length)));
}

absl::StatusOr<std::shared_ptr<MpiTransport>> MpiTransport::Create(
    MPI_Comm comm, const MpiWorld::Options& options) {
  TESSERA_RETURN_IF_ERROR(CheckOptions(options));
  TESSERA_RETURN_IF_ERROR(CheckComm(comm));
  MPI_Comm own = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  int* max_tag = nullptr;
  int has_max_tag = 0;
  TESSERA_RETURN_IF_ERROR(MpiStatus("MPI_Comm_dup", MPI_Comm_dup(comm, &own)));
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Comm_set_errhandler",
                MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN)));
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Comm_rank", MPI_Comm_rank(own, &rank)));
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Comm_size", MPI_Comm_size(own, &size)));
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Comm_get_attr",
                MPI_Comm_get_attr(own, MPI_TAG_UB, &max_tag, &has_max_tag)));
  constexpr int kLeastMaxTag = 32767;  // by the MPI standard
  return std::shared_ptr<MpiTransport>(new MpiTransport(
      own, rank, size, has_max_tag ? *max_tag : kLeastMaxTag, options));
}

int64_t MpiTransport::FreeId() {
  MutexLock lock(mutex_);
  return free_id_;
}

void MpiTransport::TakeId(int64_t id) {
  MutexLock lock(mutex_);
  free_id_ = std::max(free_id_, id + 1);
}

bool MpiTransport::HasTags(int64_t id) const {
  return id < max_tag_ / kChannels;
}

int MpiTransport::TagOf(int64_t id, MpiChannel channel) {
  return static_cast<int>(id) * kChannels + static_cast<int>(channel);
}

MpiBatch::~MpiBatch() {
  if (!requests_.empty()) GiveUp();
}

absl::Status MpiBatch::Send(int peer, int tag, const void* data, int64_t bytes,
                            Owner owner) {
  const char* next = static_cast<const char*>(data);
  for (int64_t left = bytes; left > 0;) {
    const int64_t count =
        std::min(left, transport_.options().max_message_bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    TESSERA_RETURN_IF_ERROR(MpiStatus(
        "MPI_Isend", MPI_Isend(next, static_cast<int>(count), MPI_BYTE, peer,
                               tag, transport_.comm(), &request)));
    Add(request, {.peer = peer, .memory = owner});
    next += count;
    left -= count;
  }
  return absl::OkStatus();
}

absl::Status MpiBatch::Receive(int peer, int tag, void* data, int64_t bytes,
                               Owner owner) {
  char* next = static_cast<char*>(data);
  for (int64_t left = bytes; left > 0;) {
    const int64_t count =
        std::min(left, transport_.options().max_message_bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    TESSERA_RETURN_IF_ERROR(MpiStatus(
        "MPI_Irecv", MPI_Irecv(next, static_cast<int>(count), MPI_BYTE, peer,
                               tag, transport_.comm(), &request)));
    Add(request, {.peer = peer, .is_receive = true, .memory = owner});
    next += count;
    left -= count;
  }
  return absl::OkStatus();
}

absl::Status MpiBatch::Send(int peer, int tag,
                            std::shared_ptr<const std::string> text) {
  const absl::string_view message = *text;
  return SendOne(peer, tag, message, std::move(text));
}

absl::Status MpiBatch::SendOne(int peer, int tag, absl::string_view message,
                               Owner owner) {
  MPI_Request request = MPI_REQUEST_NULL;
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Isend",
                MPI_Isend(message.data(), static_cast<int>(message.size()),
                          MPI_BYTE, peer, tag, transport_.comm(), &request)));
  Add(request, {.peer = peer, .memory = std::move(owner)});
  return absl::OkStatus();
}

absl::Status MpiBatch::ReceiveOne(int peer, int tag, char* data,
                                  int64_t most_bytes, Owner owner) {
  MPI_Request request = MPI_REQUEST_NULL;
  TESSERA_RETURN_IF_ERROR(MpiStatus(
      "MPI_Irecv", MPI_Irecv(data, static_cast<int>(most_bytes), MPI_BYTE, peer,
                             tag, transport_.comm(), &request)));
  Add(request, {.peer = peer, .is_receive = true, .memory = std::move(owner)});
  return absl::OkStatus();
}

absl::StatusOr<bool> MpiBatch::ReceiveIfThere(int peer, int tag,
                                              std::string& text, Owner owner) {
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  TESSERA_RETURN_IF_ERROR(MpiStatus(
      "MPI_Improbe",
      MPI_Improbe(peer, tag, transport_.comm(), &there, &message, &status)));
  if (!there) return false;
  int bytes = 0;
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Get_count", MPI_Get_count(&status, MPI_BYTE, &bytes)));
  text.resize(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Imrecv",
                MPI_Imrecv(text.data(), bytes, MPI_BYTE, &message, &request)));
  Add(request, {.peer = peer, .is_receive = true, .memory = std::move(owner)});
  return true;
}

void MpiBatch::Add(MPI_Request request, About about) {
  requests_.push_back(request);
  about_.push_back(std::move(about));
}

absl::StatusOr<bool> MpiBatch::Test() {
  int done = 0;
  TESSERA_RETURN_IF_ERROR(
      MpiStatus("MPI_Testall",
                MPI_Testall(static_cast<int>(requests_.size()),
                            requests_.data(), &done, MPI_STATUSES_IGNORE)));
  if (!done) return false;
  requests_.clear();
  about_.clear();
  return true;
}

std::vector<int> MpiBatch::Unfinished() {
  std::vector<int> peers;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
        !done) {
      peers.push_back(about_[i].peer);
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void MpiBatch::GiveUp() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (about_[i].is_receive && requests_[i] != MPI_REQUEST_NULL) {
      MPI_Cancel(&requests_[i]);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  while (!Unfinished().empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    KeepForever(std::move(about_[i].memory));
  }
}

absl::StatusOr<std::optional<std::string>> MpiReceiveFromAny(
    MpiTransport& transport, int tag) {
  const auto text = std::make_shared<std::string>();
  MpiBatch batch(transport);
  TESSERA_ASSIGN_OR_RETURN(
      const bool there, batch.ReceiveIfThere(MPI_ANY_SOURCE, tag, *text, text));
  if (!there) return std::nullopt;
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool done, batch.Test());
    if (done) return std::move(*text);
  }
}

}  // namespace tessera::internal
