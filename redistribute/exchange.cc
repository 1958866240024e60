#include "tessera/redistribute/exchange.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tessera/base/checked_math.h"

namespace tessera::internal {
namespace {

// --- Axes -------------------------------------------------------------------

bool Divides(const Placement& placement) {
  return placement.is_shard() || placement.is_ragged();
}

MeshCoords WithoutSizeOne(const DeviceMesh& mesh, const MeshCoords& axes) {
  MeshCoords larger;
  for (int axis : axes) {
    if (mesh.axis(axis).size > 1) larger.push_back(axis);
  }
  return larger;
}

MeshCoords AxesWhere(const DeviceMesh& mesh,
                     absl::FunctionRef<bool(int)> predicate) {
  MeshCoords axes;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (predicate(axis)) axes.push_back(axis);
  }
  return axes;
}

bool HaveSameRaggedCut(const Layout& a, const Layout& b) {
  const MeshCoords a_axes = a.RaggedAxes();
  const MeshCoords b_axes = b.RaggedAxes();
  if (a_axes.empty() || b_axes.empty()) return a_axes.empty() == b_axes.empty();
  return a.placement(a_axes.front()).cut() ==
             b.placement(b_axes.front()).cut() &&
         WithoutSizeOne(a.mesh(), a_axes) == WithoutSizeOne(b.mesh(), b_axes);
}

// Those that shard some dim, behind the common beginning of the two orders.
MeshCoords AxesOfOtherOrder(const Layout& before, const Layout& after) {
  MeshCoords axes;
  for (int dim = 0; dim < before.shape().num_dims(); ++dim) {
    const MeshCoords a = WithoutSizeOne(before.mesh(), before.ShardAxes(dim));
    const MeshCoords b = WithoutSizeOne(after.mesh(), after.ShardAxes(dim));
    const auto rest = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    axes.insert(axes.end(), rest.first, a.end());
    axes.insert(axes.end(), rest.second, b.end());
  }
  absl::c_sort(axes);
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

// --- Numbers ----------------------------------------------------------------
// Coordinates along some axes as one number, the last of the axes fastest.

int64_t CountAlong(const DeviceMesh& mesh, absl::Span<const int> axes) {
  int64_t count = 1;
  for (int axis : axes) count *= mesh.axis(axis).size;
  return count;
}

int64_t NumberAlong(const DeviceMesh& mesh, absl::Span<const int> axes,
                    const MeshCoords& coords) {
  int64_t number = 0;
  for (int axis : axes) number = number * mesh.axis(axis).size + coords[axis];
  return number;
}

// The inverse: writes the coordinates along `axes`.
void SetNumberAlong(const DeviceMesh& mesh, absl::Span<const int> axes,
                    int64_t number, MeshCoords& coords) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const int size = mesh.axis(*axis).size;
    coords[*axis] = static_cast<int>(number % size);
    number /= size;
  }
}

// --- Boxes ------------------------------------------------------------------

// The elements of one index along `dim`.
int64_t RowElements(const Box& box, size_t dim) {
  int64_t elements = 1;
  for (size_t d = dim + 1; d < box.size(); ++d) elements *= box[d].size();
  return elements;
}

// Of the elements of `box`, an index of `whole` in each dim before `dim` and
// whole from there on, appends those that the numbers `flat` of their
// row-major order name.
void AppendBoxes(const Box& whole, size_t dim, Interval flat, Box box,
                 std::vector<Box>& boxes) {
  if (dim == whole.size()) {
    boxes.push_back(std::move(box));
    return;
  }
  const int64_t row = RowElements(whole, dim);
  const auto append_part_of_row = [&](int64_t index, Interval part) {
    box[dim] = {whole[dim].begin + index, whole[dim].begin + index + 1};
    AppendBoxes(whole, dim + 1, part, box, boxes);
  };
  // The rows that `flat` holds whole.
  const Interval rows = {CeilDiv(flat.begin, row), flat.end / row};
  if (rows.begin > rows.end) {  // inside one row
    const int64_t begin = rows.end * row;
    append_part_of_row(rows.end, {flat.begin - begin, flat.end - begin});
    return;
  }
  if (flat.begin < rows.begin * row) {
    append_part_of_row(rows.begin - 1,
                       {flat.begin - (rows.begin - 1) * row, row});
  }
  if (!rows.empty()) {
    box[dim] = {whole[dim].begin + rows.begin, whole[dim].begin + rows.end};
    boxes.push_back(box);
  }
  if (flat.end > rows.end * row) {
    append_part_of_row(rows.end, {0, flat.end - rows.end * row});
  }
}

// Boxes that together are the region, in ascending order, none of them empty:
// of d dims at most 2d - 1.
std::vector<Box> BoxesOf(const Region& region) {
  if (region.num_elements() == 0) return {};
  if (!region.flat.has_value()) return {region.box};
  std::vector<Box> boxes;
  AppendBoxes(region.box, 0, *region.flat, region.box, boxes);
  return boxes;
}

// What both hold, or nullopt where that is nothing.
std::optional<Box> Overlap(const Box& a, const Box& b) {
  Box both;
  for (size_t dim = 0; dim < a.size(); ++dim) {
    both.push_back(Intersect(a[dim], b[dim]));
    if (both.back().empty()) return std::nullopt;
  }
  return both;
}

// What both hold, in an order that depends on nothing else.
std::vector<Box> Shared(absl::Span<const Box> a, absl::Span<const Box> b) {
  std::vector<Box> shared;
  for (const Box& box : a) {
    for (const Box& other : b) {
      const std::optional<Box> both = Overlap(box, other);
      if (both.has_value()) shared.push_back(*both);
    }
  }
  return shared;
}

int64_t CountElements(absl::Span<const Box> boxes) {
  int64_t elements = 0;
  for (const Box& box : boxes) {
    int64_t product = 1;
    for (const Interval& interval : box) product *= interval.size();
    elements += product;
  }
  return elements;
}

// The row-major numbers in `whole` of the elements of `box` with the least and
// with the greatest indices.
int64_t FirstNumber(const Box& whole, const Box& box) {
  int64_t number = 0;
  for (size_t dim = 0; dim < whole.size(); ++dim) {
    number = number * whole[dim].size() + box[dim].begin - whole[dim].begin;
  }
  return number;
}
int64_t LastNumber(const Box& whole, Box box) {
  for (Interval& interval : box) interval.begin = interval.end - 1;
  return FirstNumber(whole, box);
}

// --- Cells ------------------------------------------------------------------

// A cell as the coordinates of its holder at 0 along all axes that replicate.
MeshCoords CellAt(const Layout& layout, MeshCoords coords) {
  for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (!Divides(layout.placement(axis))) coords[axis] = 0;
  }
  return coords;
}

// Finds the cells of a layout that may share elements with a box: without a
// ragged cut exactly those that do.
class CellSearch {
 public:
  CellSearch(const Layout& layout, std::vector<MeshCoords>& cells)
      : layout_(layout),
        mesh_(layout.mesh()),
        ragged_axes_(layout.RaggedAxes()),
        coords_(mesh_.num_axes(), 0),
        cells_(cells) {
    for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
      orders_.push_back(layout.ShardAxes(dim));
    }
  }

  // Appends the cells. REQUIRES: the box is not empty.
  void Append(const Box& box) {
    cell_.assign(box.size(), Interval{});
    SearchDim(box, 0);
  }

 private:
  void SearchDim(const Box& box, size_t dim) {
    if (dim == box.size()) return SearchRaggedPieces(box);
    SearchCut(box, dim, 0, {0, layout_.shape().extent(static_cast<int>(dim))});
  }

  // `held` is what the first `cuts` axes of the order of `dim` leave. It
  // shares indices with the box.
  void SearchCut(const Box& box, size_t dim, size_t cuts, Interval held) {
    if (cuts == orders_[dim].size()) {
      cell_[dim] = held;
      return SearchDim(box, dim + 1);
    }
    const int axis = orders_[dim][cuts];
    const int64_t size = mesh_.axis(axis).size;
    const int64_t chunk = CeilDiv(held.size(), size);
    const Interval wanted = Intersect(held, box[dim]);
    const int64_t last = (wanted.end - 1 - held.begin) / chunk;
    for (int64_t i = (wanted.begin - held.begin) / chunk; i <= last; ++i) {
      const Interval piece = CeilSplit(held.size(), size, i);
      coords_[axis] = static_cast<int>(i);
      SearchCut(box, dim, cuts + 1,
                {held.begin + piece.begin, held.begin + piece.end});
    }
  }

  void SearchRaggedPieces(const Box& box) {
    if (ragged_axes_.empty()) return cells_.push_back(coords_);
    const RaggedCut& cut = layout_.placement(ragged_axes_.front()).cut();
    const Box shared = *Overlap(cell_, box);
    const int64_t last = cut.PieceWith(LastNumber(cell_, shared));
    for (int64_t i = cut.PieceWith(FirstNumber(cell_, shared)); i <= last;
         ++i) {
      SetNumberAlong(mesh_, ragged_axes_, i, coords_);
      cells_.push_back(coords_);
    }
  }

  const Layout& layout_;
  const DeviceMesh& mesh_;
  const MeshCoords ragged_axes_;
  std::vector<MeshCoords> orders_;  // of each dim
  MeshCoords coords_;               // of the cell at hand
  Box cell_;                        // what the shards leave of it
  std::vector<MeshCoords>& cells_;
};

// Those cells of `layout` that may share elements with the boxes, each once;
// without a ragged cut in `layout` exactly those that do.
std::vector<MeshCoords> CellsMeeting(const Layout& layout,
                                     absl::Span<const Box> boxes) {
  std::vector<MeshCoords> cells;
  CellSearch search(layout, cells);
  for (const Box& box : boxes) search.Append(box);
  if (boxes.size() > 1) {
    absl::c_sort(cells);
    cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
  }
  return cells;
}

// --- Messages ---------------------------------------------------------------

// One exchange step.
class Exchange {
 public:
  explicit Exchange(const Step& step)
      : before_(step.before),
        after_(step.after),
        is_one_mesh_(step.before.mesh() == step.after.mesh()),
        axes_(step.axes.begin(), step.axes.end()) {}

  RankExchange PartsOf(int rank) const {
    RankExchange parts;
    AddReceives(rank, parts);
    AddSends(rank, parts);
    return parts;
  }

 private:
  void AddReceives(int rank, RankExchange& parts) const {
    const std::optional<MeshCoords> coords = after_.mesh().CoordsOf(rank);
    if (!coords.has_value()) return;
    const std::vector<Box> wanted = BoxesOf(after_.RegionAt(*coords));
    for (const MeshCoords& cell : CellsMeeting(before_, wanted)) {
      std::vector<Box> shared = Shared(BoxesOf(before_.RegionAt(cell)), wanted);
      if (shared.empty()) continue;
      if (Holds(rank, cell)) {
        parts.kept = std::move(shared);
        continue;
      }
      const int sender = SenderOf(cell, *coords);
      for (Box& box : shared) parts.receives.push_back({sender, box});
    }
  }

  void AddSends(int rank, RankExchange& parts) const {
    const std::optional<MeshCoords> coords = before_.mesh().CoordsOf(rank);
    if (!coords.has_value()) return;
    const std::vector<Box> held = BoxesOf(before_.RegionAt(*coords));
    const MeshCoords cell = CellAt(before_, *coords);
    for (const MeshCoords& other : CellsMeeting(after_, held)) {
      const std::vector<Box> shared =
          Shared(held, BoxesOf(after_.RegionAt(other)));
      if (shared.empty()) continue;
      for (const MeshCoords& receiver : HoldersAfter(other, *coords)) {
        const int peer = after_.mesh().RankAt(receiver);
        if (Holds(peer, cell) || SenderOf(cell, receiver) != rank) continue;
        for (const Box& box : shared) parts.sends.push_back({peer, box});
      }
    }
  }

  // True if the rank holds this cell of `before`.
  bool Holds(int rank, const MeshCoords& cell) const {
    const std::optional<MeshCoords> coords = before_.mesh().CoordsOf(rank);
    return coords.has_value() && CellAt(before_, *coords) == cell;
  }

  // The ranks that hold this cell of `after` and may get something from the
  // rank at `sender`.
  std::vector<MeshCoords> HoldersAfter(const MeshCoords& cell,
                                       const MeshCoords& sender) const {
    const DeviceMesh& mesh = after_.mesh();
    const MeshCoords replicas = AxesWhere(mesh, [&](int axis) {
      return after_.placement(axis).is_replicate() &&
             (!is_one_mesh_ || absl::c_linear_search(axes_, axis));
    });
    MeshCoords holder = is_one_mesh_ ? sender : cell;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (Divides(after_.placement(axis))) holder[axis] = cell[axis];
    }
    std::vector<MeshCoords> holders;
    for (int64_t i = 0; i < CountAlong(mesh, replicas); ++i) {
      SetNumberAlong(mesh, replicas, i, holder);
      holders.push_back(holder);
    }
    return holders;
  }

  // The rank that sends of this cell of `before` to a rank of after's mesh
  // that does not hold it.
  int SenderOf(const MeshCoords& cell, const MeshCoords& receiver) const {
    return before_.mesh().RankAt(is_one_mesh_
                                     ? SenderOnOneMesh(cell, receiver)
                                     : SenderOnOtherMesh(cell, receiver));
  }

  MeshCoords SenderOnOneMesh(const MeshCoords& cell,
                             const MeshCoords& receiver) const {
    MeshCoords turns;
    int64_t turn = 0;
    bool is_elsewhere = false;
    for (int axis : axes_) {
      if (Divides(before_.placement(axis))) {
        turn += receiver[axis];
        is_elsewhere = is_elsewhere || cell[axis] != receiver[axis];
      } else if (is_elsewhere) {
        turns.push_back(axis);
      }
    }
    const DeviceMesh& mesh = before_.mesh();
    turn += NumberAlong(mesh, turns, receiver);
    MeshCoords sender = receiver;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (Divides(before_.placement(axis))) sender[axis] = cell[axis];
    }
    SetNumberAlong(mesh, turns, turn % CountAlong(mesh, turns), sender);
    return sender;
  }

  MeshCoords SenderOnOtherMesh(const MeshCoords& cell,
                               const MeshCoords& receiver) const {
    const DeviceMesh& mesh = before_.mesh();
    const MeshCoords replicas = AxesWhere(
        mesh, [&](int axis) { return before_.placement(axis).is_replicate(); });
    const MeshCoords all_axes =
        AxesWhere(after_.mesh(), [](int) { return true; });
    const int64_t turn = NumberAlong(after_.mesh(), all_axes, receiver);
    MeshCoords sender = cell;
    SetNumberAlong(mesh, replicas, turn % CountAlong(mesh, replicas), sender);
    return sender;
  }

  const Layout& before_;
  const Layout& after_;
  const bool is_one_mesh_;
  const MeshCoords axes_;
};

// The cells of `layout` that share elements with the boxes.
int64_t CountCells(const Layout& layout, absl::Span<const Box> boxes) {
  const std::vector<MeshCoords> cells = CellsMeeting(layout, boxes);
  if (layout.RaggedAxes().empty()) return static_cast<int64_t>(cells.size());
  return absl::c_count_if(cells, [&](const MeshCoords& cell) {
    return !Shared(BoxesOf(layout.RegionAt(cell)), boxes).empty();
  });
}

}  // namespace

MeshCoords ExchangeAxes(const Layout& before, const Layout& after) {
  const DeviceMesh& mesh = before.mesh();
  if (mesh != after.mesh()) {
    return AxesWhere(mesh, [&](int axis) { return mesh.axis(axis).size > 1; });
  }
  const MeshCoords axes = AxesOfOtherOrder(before, after);
  if (before.RaggedAxes().empty() && after.RaggedAxes().empty()) return axes;
  if (axes.empty() && HaveSameRaggedCut(before, after)) return {};
  return AxesWhere(mesh, [&](int axis) {
    return mesh.axis(axis).size > 1 &&
           (Divides(before.placement(axis)) || Divides(after.placement(axis)));
  });
}

RankExchange ExchangeOf(const Step& step, int rank) {
  return Exchange(step).PartsOf(rank);
}

ReceivedMost MostReceived(const Layout& before, const Layout& after) {
  const DeviceMesh& mesh = after.mesh();
  const MeshCoords all_axes = AxesWhere(mesh, [](int) { return true; });
  ReceivedMost most;
  for (int64_t i = 0; i < mesh.size(); ++i) {
    MeshCoords coords(mesh.num_axes(), 0);
    SetNumberAlong(mesh, all_axes, i, coords);
    const std::vector<Box> wanted = BoxesOf(after.RegionAt(coords));
    const std::vector<Box> kept =
        Shared(BoxesOf(before.RegionOf(mesh.RankAt(coords))), wanted);
    most.elements =
        std::max(most.elements, CountElements(wanted) - CountElements(kept));
    most.cells = std::max(most.cells,
                          CountCells(before, wanted) - (kept.empty() ? 0 : 1));
  }
  return most;
}

TensorView PartOf(const TensorView& local, const Region& region,
                  const Box& box) {
  if (!region.flat.has_value()) {
    TensorView part = local;
    for (size_t dim = 0; dim < box.size(); ++dim) {
      const int64_t begin = region.box[dim].begin;
      part = part.Slice(static_cast<int>(dim),
                        {box[dim].begin - begin, box[dim].end - begin});
    }
    return part;
  }
  Dims extents;
  Dims strides;
  for (size_t dim = 0; dim < box.size(); ++dim) {
    extents.push_back(box[dim].size());
    // What does not fit belongs to an extent of 1, which has no use for it.
    strides.push_back(
        SaturatingMul(RowElements(region.box, dim), local.strides().front()));
  }
  const int64_t begin = FirstNumber(region.box, box) - region.flat->begin;
  const TensorView from = local.Slice(0, {begin, local.shape().extent(0)});
  return TensorView::Strided(from.data(),
                             TensorMeta::Create(local.dtype(), extents).value(),
                             strides)
      .value();
}

}  // namespace tessera::internal
