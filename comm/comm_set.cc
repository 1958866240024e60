#include "tessera/comm/comm_set.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

// The ranks of `mesh` in the order of its coordinates, last axis fastest.
std::vector<int> RanksOf(const DeviceMesh& mesh) {
  std::vector<int> ranks = {mesh.offset()};
  for (const MeshAxis& axis : mesh.axes()) {
    std::vector<int> finer;
    finer.reserve(ranks.size() * axis.size);
    for (int rank : ranks) {
      for (int i = 0; i < axis.size; ++i) {
        finer.push_back(rank + i * axis.stride);
      }
    }
    ranks = std::move(finer);
  }
  return ranks;
}

std::string JoinNames(const DeviceMesh& mesh) {
  return absl::StrJoin(mesh.axes(), ".",
                       [](std::string* out, const MeshAxis& axis) {
                         absl::StrAppend(out, axis.name);
                       });
}

std::string ListRanks(absl::Span<const int> ranks) {
  return absl::StrCat("(", absl::StrJoin(ranks, ","), ")");
}

}  // namespace

Communicator* CommSet::Find(const Slice& slice, const Stream* stream) const {
  for (const Entry& entry : entries_) {
    if (entry.slice == slice &&
        (stream == nullptr || &entry.communicator->stream() == stream)) {
      return entry.communicator;
    }
  }
  return nullptr;
}

absl::StatusOr<CommSet::Slice> CommSet::SliceOf(
    const DeviceMesh& mesh, absl::Span<const int> axes) const {
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh slice, mesh.Slice(axes, rank()));
  return Slice{JoinNames(slice), RanksOf(slice)};
}

absl::StatusOr<Communicator*> CommSet::Get(const DeviceMesh& mesh,
                                           absl::Span<const int> axes,
                                           Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(Slice slice, SliceOf(mesh, axes));
  if (Communicator* found = Find(slice, &stream)) return found;

  std::unique_ptr<Communicator> made;
  if (Communicator* sibling = Find(slice, /*stream=*/nullptr)) {
    std::vector<int> all(sibling->size());
    std::iota(all.begin(), all.end(), 0);
    TESSERA_ASSIGN_OR_RETURN(made, sibling->Subgroup(all, slice.name, stream));
  } else {
    TESSERA_ASSIGN_OR_RETURN(
        made, world_.Subgroup(slice.members, slice.name, stream));
  }
  Communicator* communicator = made.get();
  entries_.push_back({std::move(slice), communicator, std::move(made)});
  return communicator;
}

absl::Status CommSet::Lend(const DeviceMesh& mesh, absl::Span<const int> axes,
                           Communicator& communicator) {
  TESSERA_ASSIGN_OR_RETURN(Slice slice, SliceOf(mesh, axes));
  const std::string where = absl::StrCat("axes '", slice.name, "' of mesh ",
                                         mesh.ToString(), " on rank ", rank());
  if (communicator.members() != absl::MakeConstSpan(slice.members)) {
    return absl::InvalidArgumentError(
        absl::StrCat("comm: the communicator lent for ", where,
                     " has the ranks ", ListRanks(communicator.members()),
                     ", want ", ListRanks(slice.members)));
  }
  if (Find(slice, &communicator.stream()) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("comm: there is a communicator for ", where,
                     " on stream '", communicator.stream().name(), "'"));
  }
  entries_.push_back({std::move(slice), &communicator, nullptr});
  return absl::OkStatus();
}

}  // namespace tessera
