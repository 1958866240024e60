// Every pair of placements, against values that know only index arithmetic.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/dbuffer/dbuffer.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using GroupPtr = std::shared_ptr<const BufferGroup>;

constexpr int kPoison = 0xff;  // NaN, or -1

// --- The reference ----------------------------------------------------------

// Which coordinate of each axis has element e where `placements` cut the flat
// layout; -1 for axes that are not Flat.
MeshCoords OwnersOf(const BufferGroup& group,
                    const BufferPlacements& placements, int64_t e) {
  MeshCoords owners(group.mesh().num_axes(), -1);
  int64_t size = group.flat_layout().num_elements();
  for (int axis : group.cut_order()) {
    if (!group.PlacementOf(placements, axis).is_flat()) continue;
    size /= group.mesh().axis(axis).size;
    owners[axis] = static_cast<int>(e / size);
    e %= size;
  }
  return owners;
}

bool Holds(const BufferGroup& group, const BufferPlacements& placements,
           const MeshCoords& coords, int64_t e) {
  const MeshCoords owners = OwnersOf(group, placements, e);
  for (size_t axis = 0; axis < owners.size(); ++axis) {
    if (owners[axis] >= 0 && owners[axis] != coords[axis]) return false;
  }
  return true;
}

double Combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
  }
  return 0;
}

// One conversion: what is held before it, and what must be held after it.
struct Conversion {
  const BufferGroup& group;
  const BufferPlacements& source;
  const BufferPlacements& target;
  std::vector<bool> is_padding;

  Conversion(const BufferGroup& group_in, const BufferPlacements& source_in,
             const BufferPlacements& target_in)
      : group(group_in), source(source_in), target(target_in) {
    is_padding.assign(group.flat_layout().num_elements(), false);
    for (const Interval& stretch : group.flat_layout().Padding()) {
      for (int64_t e = stretch.begin; e < stretch.end; ++e) {
        is_padding[e] = true;
      }
    }
  }

  // Small integers, alike only along the group's axes that are not Partial.
  // Averages of them are whole, too.
  double Before(const MeshCoords& coords, int64_t e) const {
    if (is_padding[e]) return 0;
    uint64_t hash = 0x9e3779b97f4a7c15u * (e + 1);
    bool has_avg = false;
    for (int axis = 0; axis < group.mesh().num_axes(); ++axis) {
      if (std::count(group.axes().begin(), group.axes().end(), axis) > 0) {
        const BufferPlacement& placement = group.PlacementOf(source, axis);
        if (!placement.is_partial()) continue;
        has_avg = has_avg || placement.op() == ReduceOp::kAvg;
      }
      hash = (hash ^ (coords[axis] + 7 * axis + 1)) * 0xbf58476d1ce4e5b9u;
    }
    const double value = static_cast<double>((hash >> 40) % 7) - 3;
    return has_avg ? 24 * value : value;
  }

  double After(const MeshCoords& coords, int64_t e) const {
    if (is_padding[e]) return 0;
    const MeshCoords owners = OwnersOf(group, source, e);
    double factor = 1;
    for (int axis : group.axes()) {
      const BufferPlacement& from = group.PlacementOf(source, axis);
      const BufferPlacement& to = group.PlacementOf(target, axis);
      if (from == to || !to.is_partial()) continue;
      if (IsScale(from, to)) {
        const double size = group.mesh().axis(axis).size;
        factor *= to.op() == ReduceOp::kAvg ? size : 1 / size;
        continue;
      }
      const bool keeps_place = from.is_flat() && to.op() == ReduceOp::kSum;
      if (coords[axis] == (keeps_place ? owners[axis] : 0)) continue;
      if (to.op() == ReduceOp::kSum) return 0;
      if (to.op() == ReduceOp::kProduct) return 1;
    }
    return factor * Reduced(coords, e, 0);
  }

  // Over the axes from the i-th on that are reduced.
  double Reduced(MeshCoords coords, int64_t e, size_t i) const {
    if (i == group.axes().size()) return Before(coords, e);
    const int axis = group.axes()[i];
    const BufferPlacement& from = group.PlacementOf(source, axis);
    const BufferPlacement& to = group.PlacementOf(target, axis);
    if (!from.is_partial() || from == to || IsScale(from, to)) {
      return Reduced(coords, e, i + 1);
    }
    const int size = group.mesh().axis(axis).size;
    coords[axis] = 0;
    double value = Reduced(coords, e, i + 1);
    for (coords[axis] = 1; coords[axis] < size; ++coords[axis]) {
      value = Combine(from.op(), value, Reduced(coords, e, i + 1));
    }
    return from.op() == ReduceOp::kAvg ? value / size : value;
  }

  static bool IsScale(const BufferPlacement& from, const BufferPlacement& to) {
    for (const BufferPlacement& p : {from, to}) {
      if (!p.is_partial()) return false;
      if (p.op() != ReduceOp::kSum && p.op() != ReduceOp::kAvg) return false;
    }
    return true;
  }
};

// --- One conversion on one rank ---------------------------------------------

double Get(const TensorView& view, int64_t i) {
  return VisitDType(view.dtype(), [&]<typename T>() {
    if constexpr (sizeof(T) == 2) {
      return static_cast<double>(static_cast<float>(view.as<T>()[i]));
    } else {
      return static_cast<double>(view.as<T>()[i]);
    }
  });
}

void Set(const TensorView& view, int64_t i, double value) {
  VisitDType(view.dtype(), [&]<typename T>() {
    if constexpr (sizeof(T) == 2) {
      view.as<T>()[i] = T(static_cast<float>(value));
    } else {
      view.as<T>()[i] = static_cast<T>(value);
    }
  });
}

class Runner {
 public:
  Runner(const GroupPtr& group, DType dtype, LocalRank& rank)
      : group_(group),
        dtype_(dtype),
        rank_(rank),
        coords_(*group->mesh().CoordsOf(rank.rank)) {}

  // In memory for the source and the target.
  absl::Status ConvertInPlace(const Conversion& c) {
    BufferPlacements both = c.source;
    for (size_t i = 0; i < both.size(); ++i) {
      if (both[i].is_flat() && !c.target[i].is_flat()) both[i] = {};
    }
    TESSERA_ASSIGN_OR_RETURN(Memory memory, Poisoned(both));
    DBuffer& buffer = memory.buffer;
    TESSERA_RETURN_IF_ERROR(
        buffer.ConvertTo(c.source, rank_.comms, rank_.stream));
    Write(c, buffer);
    TESSERA_RETURN_IF_ERROR(
        buffer.ConvertTo(c.target, rank_.comms, rank_.stream));
    TESSERA_RETURN_IF_ERROR(rank_.stream.Synchronize());
    return Check(c, c.target, &Conversion::After, buffer);
  }

  absl::Status Copy(const Conversion& c) {
    TESSERA_ASSIGN_OR_RETURN(Memory source, Poisoned(c.source));
    TESSERA_ASSIGN_OR_RETURN(Memory target, Poisoned(c.target));
    Write(c, source.buffer);
    TESSERA_RETURN_IF_ERROR(
        source.buffer.CopyTo(target.buffer, rank_.comms, rank_.stream));
    TESSERA_RETURN_IF_ERROR(rank_.stream.Synchronize());
    TESSERA_RETURN_IF_ERROR(
        Check(c, c.source, &Conversion::Before, source.buffer));
    return Check(c, c.target, &Conversion::After, target.buffer);
  }

 private:
  struct Memory {
    Buffer storage;
    DBuffer buffer;
  };

  absl::StatusOr<Memory> Poisoned(const BufferPlacements& placements) {
    const int64_t bytes = DBuffer::BytesFor(*group_, placements, dtype_);
    TESSERA_ASSIGN_OR_RETURN(Buffer storage,
                             rank_.device.Allocate(bytes, "test"));
    std::memset(storage.data(), kPoison, bytes);
    TESSERA_ASSIGN_OR_RETURN(
        DBuffer buffer, DBuffer::Wrap(group_, placements, dtype_, rank_.rank,
                                      storage.data(), bytes));
    return Memory{std::move(storage), std::move(buffer)};
  }

  void Write(const Conversion& c, const DBuffer& buffer) {
    int64_t next = 0;
    for (int64_t e = 0; e < group_->flat_layout().num_elements(); ++e) {
      if (!Holds(*group_, c.source, coords_, e)) continue;
      Set(buffer.local(), next++, c.Before(coords_, e));
    }
  }

  using Values = double (Conversion::*)(const MeshCoords&, int64_t) const;
  absl::Status Check(const Conversion& c, const BufferPlacements& placements,
                     Values values, const DBuffer& buffer) {
    if (buffer.placements() != absl::MakeConstSpan(placements)) {
      return absl::InternalError(
          absl::StrCat("says ", BufferPlacementsToString(buffer.placements())));
    }
    int64_t next = 0;
    for (int64_t e = 0; e < group_->flat_layout().num_elements(); ++e) {
      if (!Holds(*group_, placements, coords_, e)) continue;
      if (next >= buffer.local().num_elements()) {
        return absl::InternalError("too few elements");
      }
      const double want = (c.*values)(coords_, e);
      const double found = Get(buffer.local(), next++);
      if (found != want) {
        return absl::InternalError(
            absl::StrCat("element ", e, c.is_padding[e] ? " (padding)" : "",
                         ": want ", want, ", found ", found));
      }
    }
    return next == buffer.local().num_elements()
               ? absl::OkStatus()
               : absl::InternalError("too many elements");
  }

  const GroupPtr group_;
  const DType dtype_;
  LocalRank& rank_;
  const MeshCoords coords_;
};

// --- Worlds -----------------------------------------------------------------

// All placements that the group allows, of R, Flat and P(op) for these ops.
std::vector<BufferPlacements> AllPlacements(const BufferGroup& group,
                                            absl::Span<const ReduceOp> ops) {
  std::vector<BufferPlacement> kinds = {BufferPlacement::Replicate(),
                                        BufferPlacement::Flat()};
  for (ReduceOp op : ops) kinds.push_back(BufferPlacement::Partial(op));
  std::vector<BufferPlacements> all = {{}};
  for (size_t i = 0; i < group.axes().size(); ++i) {
    std::vector<BufferPlacements> longer;
    for (const BufferPlacements& shorter : all) {
      for (const BufferPlacement& kind : kinds) {
        longer.push_back(shorter);
        longer.back().push_back(kind);
      }
    }
    all = std::move(longer);
  }
  std::erase_if(
      all, [&](const BufferPlacements& p) { return !group.Validate(p).ok(); });
  return all;
}

struct World {
  absl::string_view mesh;
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  DType dtype = DType::kF32;
  CpuStreams streams = CpuStreams::kInline;
  int other_axes = 0;  // at the end of the mesh, not of the group
};

GroupPtr MakeGroup(const World& world, bool first_axis_cuts_first) {
  const DeviceMesh mesh = DeviceMesh::Parse(world.mesh).value();
  BufferGroup::Options options;
  options.num_flat_axes = mesh.num_axes() - world.other_axes;
  for (int axis = 0; axis < options.num_flat_axes; ++axis) {
    options.axes.push_back(axis);
  }
  if (first_axis_cuts_first) options.cut_order = options.axes;
  options.narrowest = world.dtype;
  std::vector<BufferGroup::Tensor> tensors;
  for (absl::string_view shape : {"[13,7]", "[]", "[61]", "[3,2,3]"}) {
    const TensorMeta meta =
        TensorMeta::Create(world.dtype, Shape::Parse(shape).value()).value();
    tensors.push_back(
        {std::string(shape),
         Layout::Create(meta, mesh, Placements(mesh.num_axes())).value()});
  }
  return BufferGroup::Create(mesh, std::move(tensors), std::move(options))
      .value();
}

absl::Status RunAllPairs(const GroupPtr& group, const World& world,
                         LocalRank& rank) {
  const std::vector<BufferPlacements> all = AllPlacements(*group, world.ops);
  Runner runner(group, world.dtype, rank);
  const auto named = [](const Conversion& c, absl::string_view how,
                        const absl::Status& status) {
    if (status.ok()) return status;
    return absl::Status(
        status.code(),
        absl::StrCat(BufferPlacementsToString(c.source), " ", how, " ",
                     BufferPlacementsToString(c.target), ": ",
                     status.message()));
  };
  for (const BufferPlacements& source : all) {
    for (const BufferPlacements& target : all) {
      const Conversion c(*group, source, target);
      TESSERA_RETURN_IF_ERROR(named(c, "to", runner.ConvertInPlace(c)));
      TESSERA_RETURN_IF_ERROR(named(c, "copied to", runner.Copy(c)));
    }
  }
  return absl::OkStatus();
}

void ExpectAllPairs(const World& world) {
  for (bool first_axis_cuts_first : {false, true}) {
    SCOPED_TRACE(absl::StrCat(std::string(world.mesh), ", the ",
                              first_axis_cuts_first ? "first" : "last",
                              " axis cuts first"));
    const GroupPtr group = MakeGroup(world, first_axis_cuts_first);
    LocalRunOptions options;
    options.device.streams = world.streams;
    EXPECT_OK(RunLocalRanks(
        group->mesh().size(),
        [&](LocalRank& rank) { return RunAllPairs(group, world, rank); },
        options));
  }
}

TEST(DBufferConversionTest, EveryPairOn4) {
  ExpectAllPairs({.mesh = "dp=4", .ops = {ReduceOp::kSum, ReduceOp::kAvg}});
}

TEST(DBufferConversionTest, EveryPairOn2x2) {
  ExpectAllPairs({.mesh = "dp_outer=2,dp_inner=2",
                  .ops = {ReduceOp::kSum, ReduceOp::kAvg}});
}

TEST(DBufferConversionTest, EveryPairOn2x3) {
  ExpectAllPairs({.mesh = "dp_outer=2,dp_inner=3",
                  .ops = {ReduceOp::kSum, ReduceOp::kAvg}});
}

TEST(DBufferConversionTest, EveryPairOn2x2x2) {
  ExpectAllPairs({.mesh = "a=2,b=2,c=2"});
}

TEST(DBufferConversionTest, EveryPairWithAxesOfSize1) {
  ExpectAllPairs({.mesh = "a=1,b=2", .ops = {ReduceOp::kSum, ReduceOp::kAvg}});
  for (absl::string_view mesh : {"dp=1", "a=2,b=1", "a=2,b=1,c=2"}) {
    ExpectAllPairs({.mesh = mesh});
  }
}

TEST(DBufferConversionTest, EveryPairBesideAnotherAxis) {
  ExpectAllPairs({.mesh = "dp_outer=2,dp_inner=2,tp=2", .other_axes = 1});
}

TEST(DBufferConversionTest, EveryPairOfEveryOp) {
  const std::vector<ReduceOp> all(std::begin(kAllReduceOps),
                                  std::end(kAllReduceOps));
  ExpectAllPairs({.mesh = "dp=3", .ops = all});
  ExpectAllPairs({.mesh = "dp_outer=2,dp_inner=2", .ops = all});
}

TEST(DBufferConversionTest, EveryPairInOtherDTypes) {
  for (DType dtype : {DType::kI32, DType::kBF16, DType::kF64}) {
    SCOPED_TRACE(DTypeName(dtype));
    ExpectAllPairs({.mesh = "dp_outer=2,dp_inner=2",
                    .ops = {ReduceOp::kSum, ReduceOp::kMax},
                    .dtype = dtype});
  }
}

TEST(DBufferConversionTest, EveryPairOnWorkerStreams) {
  ExpectAllPairs(
      {.mesh = "dp_outer=2,dp_inner=2", .streams = CpuStreams::kWorker});
}

}  // namespace
}  // namespace tessera
