#include "tessera/dbuffer/buffer_placement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/scanner.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

// Reads "(op)" where it is there.
absl::StatusOr<BufferPlacement> ParsePartial(internal::Scanner& scanner) {
  if (!scanner.Consume("(")) return BufferPlacement::Partial();
  for (ReduceOp op : kAllReduceOps) {
    if (!scanner.Consume(ReduceOpName(op))) continue;
    if (!scanner.Consume(")")) return scanner.Error("')' behind a reduction");
    return BufferPlacement::Partial(op);
  }
  return scanner.Error("one of sum, avg, min, max and product");
}

absl::StatusOr<BufferPlacement> ParsePlacement(internal::Scanner& scanner) {
  if (scanner.Consume("R")) return BufferPlacement::Replicate();
  if (scanner.Consume("Flat")) return BufferPlacement::Flat();
  if (scanner.Consume("P")) return ParsePartial(scanner);
  return scanner.Error("a placement: R, Flat or P(op)");
}

}  // namespace

std::string BufferPlacement::ToString() const {
  switch (kind_) {
    case Kind::kReplicate:
      return "R";
    case Kind::kFlat:
      return "Flat";
    case Kind::kPartial:
      return absl::StrCat("P(", ReduceOpName(op_), ")");
  }
  return "";
}

std::string BufferPlacementsToString(
    absl::Span<const BufferPlacement> placements) {
  const auto append = [](std::string* out, const BufferPlacement& placement) {
    absl::StrAppend(out, placement.ToString());
  };
  return absl::StrCat("[", absl::StrJoin(placements, ", ", append), "]");
}

absl::StatusOr<BufferPlacements> ParseBufferPlacements(absl::string_view text) {
  internal::Scanner scanner("dbuffer", text);
  if (!scanner.Consume("[")) return scanner.Error("'[' and placements");
  BufferPlacements placements;
  while (!scanner.Consume("]")) {
    if (!placements.empty() && !scanner.Consume(",")) {
      return scanner.Error("',' or ']' behind a placement");
    }
    TESSERA_ASSIGN_OR_RETURN(const BufferPlacement placement,
                             ParsePlacement(scanner));
    placements.push_back(placement);
  }
  if (!scanner.AtEnd()) return scanner.Error("the end of the placements");
  return placements;
}

}  // namespace tessera
