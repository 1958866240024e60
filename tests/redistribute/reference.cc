#include "tests/redistribute/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace tessera::testing {
namespace {

using Numbers = std::vector<int64_t>;

// Piece `index` of `parts` of a list.
Numbers PieceOf(const Numbers& list, int64_t parts, int64_t index) {
  const int64_t size = static_cast<int64_t>(list.size());
  const int64_t chunk = (size + parts - 1) / parts;
  return Numbers(list.begin() + std::min(size, index * chunk),
                 list.begin() + std::min(size, (index + 1) * chunk));
}

// The indices along `dim` that the rank at `coords` holds.
Numbers HeldIndices(const Layout& layout, const MeshCoords& coords, int dim) {
  Numbers held;
  for (int64_t i = 0; i < layout.shape().extent(dim); ++i) held.push_back(i);
  for (int axis : layout.ShardAxes(dim)) {
    held = PieceOf(held, layout.mesh().axis(axis).size, coords[axis]);
  }
  return held;
}

// The piece of a ragged cut that begins with number `index`.
Numbers RaggedPieceOf(const Numbers& list, const RaggedCut& cut,
                      int64_t index) {
  const auto bound = [&](int64_t i) {
    const int64_t at =
        cut.is_affine() ? cut.first() + i * cut.step() : cut.bounds()[i];
    return std::clamp<int64_t>(at, 0, static_cast<int64_t>(list.size()));
  };
  return Numbers(list.begin() + bound(index), list.begin() + bound(index + 1));
}

// A number that looks random, of at least 0 and below `bound`.
int64_t Random(int64_t a, int64_t b, int64_t bound) {
  uint64_t x = static_cast<uint64_t>(a) * 0x9e3779b97f4a7c15u +
               static_cast<uint64_t>(b) * 0xbf58476d1ce4e5b9u + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<int64_t>((x ^ (x >> 31)) % static_cast<uint64_t>(bound));
}

// The Partial axes of a layout as one axis.
struct PartialGroup {
  explicit PartialGroup(const Layout& layout) {
    for (int axis = 0; axis < layout.mesh().num_axes(); ++axis) {
      if (!layout.placement(axis).is_partial()) continue;
      axes.push_back(axis);
      op = layout.placement(axis).op();
      const int64_t axis_size = layout.mesh().axis(axis).size;
      size *= axis_size;
      if (op == ReduceOp::kAvg) divisor *= axis_size;
    }
  }
  int64_t IndexOf(const DeviceMesh& mesh, const MeshCoords& coords) const {
    int64_t index = 0;
    for (int axis : axes) index = index * mesh.axis(axis).size + coords[axis];
    return index;
  }

  std::vector<int> axes;
  ReduceOp op = ReduceOp::kSum;  // sum or avg where both occur
  int64_t size = 1;
  int64_t divisor = 1;  // product of the axes that average
};

// What the member at `index` of a Partial group holds of element `number`.
double Addend(const PartialGroup& group, int64_t number, int64_t index) {
  const double value = GlobalValue(number);
  switch (group.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: {
      const auto other = [&](int64_t i) {
        return static_cast<double>(group.divisor * (Random(number, i, 7) - 3));
      };
      if (index != 0) return other(index);
      double first = value * static_cast<double>(group.divisor);
      for (int64_t i = 1; i < group.size; ++i) first -= other(i);
      return first;
    }
    case ReduceOp::kMin:
    case ReduceOp::kMax: {
      const bool holds_it = index == Random(number, -1, group.size);
      const auto away = static_cast<double>(Random(number, index, 9));
      if (holds_it) return value;
      return group.op == ReduceOp::kMin ? value + away : value - away;
    }
    case ReduceOp::kProduct: {
      const auto sign = [&](int64_t i) {
        return Random(number, i, 2) == 0 ? -1.0 : 1.0;
      };
      if (index != 0) return sign(index);
      double first = value;
      for (int64_t i = 1; i < group.size; ++i) first *= sign(i);
      return first;
    }
  }
  return 0;
}

double Combine(const PartialGroup& group, absl::Span<const double> parts) {
  double result = parts[0];
  for (double part : parts.subspan(1)) {
    if (std::isnan(part)) return part;
    switch (group.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result += part;
        break;
      case ReduceOp::kMin:
        result = std::min(result, part);
        break;
      case ReduceOp::kMax:
        result = std::max(result, part);
        break;
      case ReduceOp::kProduct:
        result *= part;
        break;
    }
  }
  return result / static_cast<double>(group.divisor);
}

MeshCoords CoordsOf(const DeviceMesh& mesh, int rank) {
  return mesh.CoordsOf(rank).value();
}

// All ranks' pieces, by coordinates.
class Pieces {
 public:
  Pieces(const Layout& layout, absl::Span<const std::vector<double>> pieces)
      : layout_(layout),
        group_(layout),
        pieces_(pieces),
        ranks_(RanksOf(layout.mesh())) {}

  std::string FindFault() const {
    for (int rank : ranks_) {
      const Numbers held = HeldElements(layout_, rank);
      std::string fault = FaultInSize(rank, held);
      if (fault.empty()) fault = FaultInReplica(rank, held);
      if (fault.empty()) fault = FaultInValues(rank, held);
      if (!fault.empty()) return fault;
    }
    return "";
  }

 private:
  const DeviceMesh& mesh() const { return layout_.mesh(); }
  const std::vector<double>& PieceOfRank(int rank) const {
    return pieces_[std::find(ranks_.begin(), ranks_.end(), rank) -
                   ranks_.begin()];
  }

  std::string FaultInSize(int rank, const Numbers& held) const {
    const size_t size = PieceOfRank(rank).size();
    if (size == held.size()) return "";
    return absl::StrCat("rank ", rank, " holds ", size, " elements, want ",
                        held.size());
  }

  // Replicas of one piece are the same, bit for bit.
  std::string FaultInReplica(int rank, const Numbers& held) const {
    MeshCoords coords = CoordsOf(mesh(), rank);
    for (int axis = 0; axis < mesh().num_axes(); ++axis) {
      if (layout_.placement(axis).is_replicate()) coords[axis] = 0;
    }
    const std::vector<double>& mine = PieceOfRank(rank);
    const std::vector<double>& first = PieceOfRank(mesh().RankAt(coords));
    for (size_t i = 0; i < held.size(); ++i) {
      if (std::bit_cast<uint64_t>(mine[i]) !=
          std::bit_cast<uint64_t>(first[i])) {
        return absl::StrCat("element ", held[i], " on rank ", rank, " is ",
                            mine[i], ", on its replica ", first[i]);
      }
    }
    return "";
  }

  // All that hold the elements of `rank` along Partial axes mean the value.
  std::string FaultInValues(int rank, const Numbers& held) const {
    std::vector<const std::vector<double>*> members;
    for (int other : ranks_) {
      MeshCoords coords = CoordsOf(mesh(), other);
      for (int axis : group_.axes) coords[axis] = CoordsOf(mesh(), rank)[axis];
      if (mesh().RankAt(coords) == rank) {
        members.push_back(&PieceOfRank(other));
      }
    }
    for (size_t i = 0; i < held.size(); ++i) {
      std::vector<double> parts;
      for (const auto* member : members) parts.push_back(member->at(i));
      const double value = Combine(group_, parts);
      if (value != GlobalValue(held[i])) {
        return absl::StrCat("element ", held[i], " on rank ", rank, " is ",
                            value, ", want ", GlobalValue(held[i]));
      }
    }
    return "";
  }

  const Layout& layout_;
  const PartialGroup group_;
  const absl::Span<const std::vector<double>> pieces_;
  const std::vector<int> ranks_;
};

}  // namespace

std::vector<int> RanksOf(const DeviceMesh& mesh) {
  std::vector<int> ranks = {mesh.offset()};
  for (const MeshAxis& axis : mesh.axes()) {
    std::vector<int> more;
    for (int rank : ranks) {
      for (int i = 0; i < axis.size; ++i) {
        more.push_back(rank + i * axis.stride);
      }
    }
    ranks = more;
  }
  return ranks;
}

double GlobalValue(int64_t number) {
  return static_cast<double>(number * 7 % 41 - 20);
}

std::vector<int64_t> HeldElements(const Layout& layout, int rank) {
  const MeshCoords coords = CoordsOf(layout.mesh(), rank);
  Numbers elements = {0};
  for (int dim = 0; dim < layout.shape().num_dims(); ++dim) {
    Numbers more;
    const Numbers indices = HeldIndices(layout, coords, dim);
    for (int64_t element : elements) {
      for (int64_t index : indices) {
        more.push_back(element * layout.shape().extent(dim) + index);
      }
    }
    elements = more;
  }
  const auto ragged = layout.RaggedAxes();
  if (ragged.empty()) return elements;
  int64_t index = 0;
  for (int axis : ragged) {
    index = index * layout.mesh().axis(axis).size + coords[axis];
  }
  return RaggedPieceOf(elements, layout.placement(ragged[0]).cut(), index);
}

int64_t CountNewElements(const Layout& before, const Layout& after, int rank) {
  Numbers had;
  if (before.mesh().Contains(rank)) had = HeldElements(before, rank);
  const Numbers has = HeldElements(after, rank);
  return std::count_if(has.begin(), has.end(), [&](int64_t element) {
    return !std::binary_search(had.begin(), had.end(), element);
  });
}

std::vector<double> LocalValues(const Layout& layout, int rank) {
  const PartialGroup group(layout);
  const int64_t index =
      group.IndexOf(layout.mesh(), CoordsOf(layout.mesh(), rank));
  std::vector<double> values;
  for (int64_t number : HeldElements(layout, rank)) {
    values.push_back(Addend(group, number, index));
  }
  return values;
}

std::string FindFault(const Layout& layout,
                      absl::Span<const std::vector<double>> pieces) {
  return Pieces(layout, pieces).FindFault();
}

}  // namespace tessera::testing
