#include "tessera/comm/comm_set.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
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

// Where `some` lie in `all`. REQUIRES: they do.
std::vector<int> IndicesIn(absl::Span<const int> all,
                           absl::Span<const int> some) {
  absl::flat_hash_map<int, int> index;
  for (int rank : all) index.emplace(rank, static_cast<int>(index.size()));
  std::vector<int> indices;
  indices.reserve(some.size());
  for (int rank : some) indices.push_back(index.at(rank));
  return indices;
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

Communicator* CommSet::Find(const Group& group, const Stream* stream) const {
  for (const Entry& entry : entries_) {
    if (entry.group == group &&
        (stream == nullptr || &entry.communicator->stream() == stream)) {
      return entry.communicator;
    }
  }
  return nullptr;
}

CommSet::Group CommSet::GroupOf(const DeviceMesh& slice) {
  return {JoinNames(slice), RanksOf(slice)};
}

absl::StatusOr<Communicator*> CommSet::FindOrMake(Group group, Stream& stream) {
  if (Communicator* found = Find(group, &stream)) return found;

  std::unique_ptr<Communicator> made;
  if (Communicator* sibling = Find(group, /*stream=*/nullptr)) {
    std::vector<int> all(sibling->size());
    std::iota(all.begin(), all.end(), 0);
    TESSERA_ASSIGN_OR_RETURN(made, sibling->Subgroup(all, group.name, stream));
  } else {
    TESSERA_ASSIGN_OR_RETURN(
        made, world_.Subgroup(group.members, group.name, stream));
  }
  return Keep(std::move(group), std::move(made));
}

Communicator* CommSet::Keep(Group group, std::unique_ptr<Communicator> made) {
  Communicator* const communicator = made.get();
  entries_.push_back({std::move(group), communicator, std::move(made)});
  return communicator;
}

absl::StatusOr<Communicator*> CommSet::Get(const DeviceMesh& mesh,
                                           absl::Span<const int> axes,
                                           Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh slice, mesh.Slice(axes, rank()));
  const std::pair<DeviceMesh, const Stream*> key(slice, &stream);
  const auto found = found_.find(key);
  if (found != found_.end()) return found->second;
  TESSERA_ASSIGN_OR_RETURN(Communicator* const communicator,
                           FindOrMake(GroupOf(slice), stream));
  found_.emplace(key, communicator);
  return communicator;
}

absl::StatusOr<Communicator*> CommSet::GetTogether(const DeviceMesh& mesh,
                                                   absl::Span<const int> axes,
                                                   Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh slice, mesh.Slice(axes, rank()));
  const std::vector<int> all_axes(axes.begin(), axes.end());
  if (!together_.contains({mesh, all_axes})) {
    TESSERA_RETURN_IF_ERROR(MakeTogether(mesh, slice, stream));
    together_.emplace(mesh, all_axes);
  }
  return Get(mesh, axes, stream);
}

// All ranks of the mesh decide alike: a group is made, or lent, on all of its
// members. One that is the whole mesh needs no partition.
absl::Status CommSet::MakeTogether(const DeviceMesh& mesh,
                                   const DeviceMesh& slice, Stream& stream) {
  Communicator* const parent = FindSpanning(mesh);
  if (parent == nullptr || slice.size() == 1 || slice.size() == mesh.size()) {
    return absl::OkStatus();
  }
  Group group = GroupOf(slice);
  std::vector<int> members;  // of the parent
  if (Find(group, /*stream=*/nullptr) == nullptr) {
    members = parent == &world_ ? group.members
                                : IndicesIn(RanksOf(mesh), group.members);
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> made,
                           parent->Partition(members, group.name, stream));
  if (made != nullptr) Keep(std::move(group), std::move(made));
  return absl::OkStatus();
}

Communicator* CommSet::FindSpanning(const DeviceMesh& mesh) const {
  const int all = world_.size();
  if (mesh.size() == all && mesh.end_rank() == all) return &world_;
  return Find(GroupOf(mesh), /*stream=*/nullptr);
}

absl::StatusOr<Communicator*> CommSet::GetUnion(
    absl::Span<const DeviceMesh> meshes, Stream& stream) {
  std::vector<int> ranks;
  for (const DeviceMesh& mesh : meshes) {
    const std::vector<int> some = RanksOf(mesh);
    ranks.insert(ranks.end(), some.begin(), some.end());
  }
  absl::c_sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return FindOrMake(
      {absl::StrJoin(meshes, "+", absl::StreamFormatter()), std::move(ranks)},
      stream);
}

absl::Status CommSet::Agree(Communicator& group, uint64_t fingerprint,
                            absl::FunctionRef<std::string()> describe) {
  const size_t key = absl::HashOf(group.members(), fingerprint);
  if (agreed_.contains(key)) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<std::string> fingerprints,
      group.HostAllGather(absl::StrCat(absl::Hex(fingerprint))));
  const bool all_equal = absl::c_all_of(
      fingerprints,
      [&](const std::string& other) { return other == fingerprints.front(); });
  if (all_equal) {
    agreed_.insert(key);
    return absl::OkStatus();
  }
  // Only now, for in large groups the texts are long.
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                           group.HostAllGather(describe()));
  std::map<std::string, std::vector<int>> ranks_by_text;
  for (size_t i = 0; i < texts.size(); ++i) {
    ranks_by_text[texts[i]].push_back(group.members()[i]);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "comm: ranks of '", group.name(), "' disagree: ",
      absl::StrJoin(
          ranks_by_text, "; ", [](std::string* out, const auto& entry) {
            const auto& [text, ranks] = entry;
            absl::StrAppend(out, ranks.size() == 1 ? "rank " : "ranks ",
                            absl::StrJoin(ranks, ","), ": ", text);
          })));
}

void CommSet::Abort(const absl::Status& reason) {
  for (const Entry& entry : entries_) entry.communicator->Abort(reason);
}

absl::Status CommSet::Lend(const DeviceMesh& mesh, absl::Span<const int> axes,
                           Communicator& communicator) {
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh ranks, mesh.Slice(axes, rank()));
  Group slice = GroupOf(ranks);
  const std::string where = absl::StrCat("axes '", slice.name, "' of mesh ",
                                         mesh.ToString(), " on rank ", rank());
  // Of the backend's world, as those of the communicator: the mesh numbers the
  // ranks of this set's.
  std::vector<int> wanted;
  for (int rank : slice.members) {
    if (rank >= world_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("comm: lent for ", where, ": want ranks below ",
                       world_.size(), ", found ", rank));
    }
    wanted.push_back(world_.members()[rank]);
  }
  if (communicator.members() != absl::MakeConstSpan(wanted)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm: the communicator lent for ", where, " has the ranks ",
        ListRanks(communicator.members()), ", want ", ListRanks(wanted)));
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
