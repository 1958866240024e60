// The text form of layouts: Parse and ToString.

#include <cstddef>
#include <tuple>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/scanner.h"
#include "tessera/base/status_macros.h"
#include "tessera/placement/layout.h"

namespace tessera {
namespace {

using internal::Scanner;

struct ParsedPlacement {
  Placement placement;
  std::optional<int> order_position;  // behind S(d) only
};

// Reads "[position]" where it is there.
absl::StatusOr<std::optional<int>> ParsePosition(Scanner& scanner) {
  if (!scanner.Consume("[")) return std::optional<int>();
  const std::optional<int> position = scanner.ConsumeInt<int>();
  if (!position.has_value()) return scanner.Error("a position");
  if (!scanner.Consume("]")) return scanner.Error("']' behind a position");
  return position;
}

// Reads "(dim)" and, where it is there, "[position]".
absl::StatusOr<ParsedPlacement> ParseShard(Scanner& scanner) {
  if (!scanner.Consume("(")) return scanner.Error("'(' behind S");
  const std::optional<int> dim = scanner.ConsumeInt<int>();
  if (!dim.has_value()) return scanner.Error("a tensor dim");
  if (!scanner.Consume(")")) return scanner.Error("')' behind a tensor dim");
  TESSERA_ASSIGN_OR_RETURN(const std::optional<int> position,
                           ParsePosition(scanner));
  return ParsedPlacement{Placement::Shard(*dim), position};
}

// Reads "(op)" where it is there.
absl::StatusOr<Placement> ParsePartial(Scanner& scanner) {
  if (!scanner.Consume("(")) return Placement::Partial();
  for (ReduceOp op : kAllReduceOps) {
    if (!scanner.Consume(ReduceOpName(op))) continue;
    if (!scanner.Consume(")")) return scanner.Error("')' behind a reduction");
    return Placement::Partial(op);
  }
  return scanner.Error("one of sum, avg, min, max and product");
}

// Reads "0,3,7" or "-6+4".
absl::StatusOr<RaggedCut> ParseCut(Scanner& scanner) {
  std::vector<int64_t> numbers;
  do {
    const std::optional<int64_t> number = scanner.ConsumeInt<int64_t>();
    if (!number.has_value()) return scanner.Error("an int64 bound");
    numbers.push_back(*number);
  } while (scanner.Consume(","));
  if (numbers.size() > 1 || !scanner.Consume("+")) {
    return RaggedCut::Explicit(numbers);
  }
  const std::optional<int64_t> step = scanner.ConsumeInt<int64_t>();
  if (!step.has_value()) return scanner.Error("an int64 step");
  return RaggedCut::Affine(numbers.front(), *step);
}

// Reads "(cut)" and, where it is there, "[position]".
absl::StatusOr<Placement> ParseRagged(Scanner& scanner) {
  if (!scanner.Consume("(")) return scanner.Error("'(' behind Ragged");
  TESSERA_ASSIGN_OR_RETURN(RaggedCut cut, ParseCut(scanner));
  if (!scanner.Consume(")")) return scanner.Error("')' behind a ragged cut");
  TESSERA_ASSIGN_OR_RETURN(const std::optional<int> position,
                           ParsePosition(scanner));
  return Placement::Ragged(std::move(cut), position.value_or(0));
}

absl::StatusOr<ParsedPlacement> ParsePlacement(Scanner& scanner) {
  ParsedPlacement result;
  if (scanner.Consume("Ragged")) {
    TESSERA_ASSIGN_OR_RETURN(result.placement, ParseRagged(scanner));
  } else if (scanner.Consume("S")) {
    TESSERA_ASSIGN_OR_RETURN(result, ParseShard(scanner));
  } else if (scanner.Consume("P")) {
    TESSERA_ASSIGN_OR_RETURN(result.placement, ParsePartial(scanner));
  } else if (!scanner.Consume("R")) {
    return scanner.Error("a placement: R, S(dim), P(op) or Ragged(cut)");
  }
  return result;
}

absl::StatusOr<std::vector<ParsedPlacement>> ParsePlacements(
    absl::string_view text) {
  Scanner scanner("layout", text);
  if (!scanner.Consume("[")) return scanner.Error("'[' and placements");
  std::vector<ParsedPlacement> result;
  while (!scanner.Consume("]")) {
    if (!result.empty() && !scanner.Consume(",")) {
      return scanner.Error("',' or ']' behind a placement");
    }
    TESSERA_ASSIGN_OR_RETURN(ParsedPlacement placement,
                             ParsePlacement(scanner));
    result.push_back(std::move(placement));
  }
  if (!scanner.AtEnd()) return scanner.Error("the end of the placements");
  return result;
}

// The cutting orders that the positions say, of the dims that have some.
absl::StatusOr<std::vector<Layout::DimOrder>> OrderOf(
    const Shape& shape, absl::Span<const ParsedPlacement> parsed) {
  std::vector<std::tuple<int, int, int>> entries;  // dim, position, axis
  for (size_t axis = 0; axis < parsed.size(); ++axis) {
    if (!parsed[axis].order_position.has_value()) continue;
    TESSERA_ASSIGN_OR_RETURN(const int dim,
                             shape.NormalizeDim(parsed[axis].placement.dim()));
    entries.emplace_back(dim, *parsed[axis].order_position,
                         static_cast<int>(axis));
  }
  absl::c_sort(entries);
  std::vector<Layout::DimOrder> order;
  for (const auto& [dim, position, axis] : entries) {
    if (order.empty() || order.back().dim != dim)
      order.emplace_back().dim = dim;
    const int wanted = static_cast<int>(order.back().axes.size());
    if (position != wanted) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: want position ", wanted,
          " next in the cutting order of dim ", dim, ", found ", position));
    }
    order.back().axes.push_back(axis);
  }
  return order;
}

absl::StatusOr<Layout> CreateFromText(const TensorMeta& meta,
                                      const DeviceMesh& mesh,
                                      absl::string_view placements) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<ParsedPlacement> parsed,
                           ParsePlacements(placements));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Layout::DimOrder> order,
                           OrderOf(meta.shape(), parsed));
  Placements plain;
  for (const ParsedPlacement& p : parsed) plain.push_back(p.placement);
  return Layout::Create(meta, mesh, plain, order);
}

}  // namespace

absl::StatusOr<Layout> Layout::Parse(absl::string_view text,
                                     const DeviceMesh& mesh) {
  const size_t bracket = text.find(']');
  const size_t meta_size =
      bracket == absl::string_view::npos ? text.size() : bracket + 1;
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta,
                           TensorMeta::Parse(text.substr(0, meta_size)));
  return CreateFromText(meta, mesh, text.substr(meta_size));
}

absl::StatusOr<Layout> Layout::With(absl::string_view placements) const {
  return CreateFromText(meta(), mesh(), placements);
}

std::string Layout::PlacementsToString() const {
  std::string text = "[";
  for (int axis = 0; axis < mesh().num_axes(); ++axis) {
    const Placement& here = placement(axis);
    absl::StrAppend(&text, axis == 0 ? "" : ", ", here.ToString());
    if (here.is_shard() && !absl::c_is_sorted(ShardAxes(here.dim()))) {
      absl::StrAppend(&text, "[", order_position(axis), "]");
    }
  }
  return absl::StrCat(text, "]");
}

std::string Layout::ToString() const {
  return absl::StrCat(meta().ToString(), " ", PlacementsToString());
}

}  // namespace tessera
