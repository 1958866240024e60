#include "tessera/testing/plan_checks.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "tessera/redistribute/verify.h"

namespace tessera::testing {
namespace {

template <typename Found>
absl::Status Differs(const Plan& plan, absl::string_view wanted,
                     const Found& found) {
  return absl::FailedPreconditionError(absl::StrCat("testing: want ", wanted,
                                                    ", found ", found, " in\n",
                                                    DescribePlan(plan)));
}

// The placement along the axis of this name, if the mesh has one.
std::optional<Placement> PlacementAlong(const Layout& layout,
                                        absl::string_view axis) {
  const absl::StatusOr<int> index = layout.mesh().FindAxis(axis);
  if (!index.ok()) return std::nullopt;
  return layout.placement(*index);
}

bool Gathers(const Step& step, absl::string_view axis) {
  const std::optional<Placement> before = PlacementAlong(step.before, axis);
  const std::optional<Placement> after = PlacementAlong(step.after, axis);
  return before.has_value() && after.has_value() &&
         (before->is_shard() || before->is_ragged()) && after->is_replicate();
}

}  // namespace

absl::Status CheckVerified(const Plan& plan) {
  const absl::Status proof = Verify(plan);
  if (proof.ok()) return proof;
  return Differs(plan, "a plan that is right", proof.message());
}

std::string StepLine(const Plan& plan) {
  return absl::StrJoin(plan.steps(), " ", [](std::string* out, const Step& s) {
    absl::StrAppend(out, s.Name());
  });
}

absl::Status CheckSteps(const Plan& plan, absl::string_view line) {
  const std::string found = StepLine(plan);
  if (found == line) return absl::OkStatus();
  return Differs(plan, absl::StrCat("steps \"", line, "\""),
                 absl::StrCat("\"", found, "\""));
}

absl::Status CheckBytesAtMost(const Plan& plan, int64_t bytes) {
  if (plan.bytes_received() <= bytes) return absl::OkStatus();
  return Differs(plan, absl::StrCat("at most ", bytes, " bytes received"),
                 plan.bytes_received());
}

absl::Status CheckPeakBelow(const Plan& plan, int64_t bytes) {
  if (plan.peak_bytes() < bytes) return absl::OkStatus();
  return Differs(plan, absl::StrCat("a peak below ", bytes, " bytes"),
                 plan.peak_bytes());
}

absl::Status CheckLaunchesAtMost(const Plan& plan, int64_t launches) {
  if (plan.launches() <= launches) return absl::OkStatus();
  return Differs(plan, absl::StrCat("at most ", launches, " launches"),
                 plan.launches());
}

absl::Status CheckNeverGathers(const Plan& plan, absl::string_view axis) {
  const absl::StatusOr<int> known = plan.source().mesh().FindAxis(axis);
  if (!known.ok()) return known.status();
  for (const Step& step : plan.steps()) {
    if (!Gathers(step, axis)) continue;
    return Differs(
        plan, absl::StrCat("no step that gathers along '", axis, "'"),
        absl::StrCat(step.Name(), " to ", step.after.PlacementsToString()));
  }
  return absl::OkStatus();
}

std::string DescribePlan(const Plan& plan) {
  const std::string text =
      absl::StrCat("  ", plan.ToString(), "\n", plan.ToTable());
  return absl::StrReplaceAll(absl::StripSuffix(text, "\n"), {{"\n", "\n  "}});
}

}  // namespace tessera::testing
