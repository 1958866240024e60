#include "shardings.h"

#include "absl/strings/string_view.h"
#include "tessera/base/status_macros.h"

namespace plan_tests {
namespace {

absl::StatusOr<Move> MakeMove(absl::string_view from, absl::string_view to) {
  TESSERA_ASSIGN_OR_RETURN(const auto mesh,
                           tessera::DeviceMesh::Parse("dp=2,tp=4"));
  TESSERA_ASSIGN_OR_RETURN(const auto source,
                           tessera::Layout::Parse(from, mesh));
  TESSERA_ASSIGN_OR_RETURN(const auto target, source.With(to));
  return Move{source, target};
}

}  // namespace

absl::StatusOr<Move> GradientToShards() {
  return MakeMove("bf16[64,32] [P(sum), S(0)]", "[S(1), S(0)]");
}

absl::StatusOr<Move> SequenceToHeads() {
  return MakeMove("f32[4,16,8] [S(0), S(1)]", "[S(0), S(2)]");
}

}  // namespace plan_tests
