#include "tessera/redistribute/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/base/checked_math.h"
#include "tessera/base/stable_hash.h"
#include "tessera/redistribute/storage.h"
#include "tessera/redistribute/text_table.h"

namespace tessera {
namespace {

using internal::FormatMicroseconds;
using internal::Storage;
using internal::TableRow;

int64_t SumOverSteps(absl::Span<const Step> steps, int64_t Step::*figure) {
  int64_t sum = 0;
  for (const Step& step : steps) sum = SaturatingAdd(sum, step.*figure);
  return sum;
}

// What a fingerprint covers. Lines end plainly, so that no two plans have one
// text: no name, layout or number has a newline.
std::string CanonicalText(const Plan& plan) {
  std::string text = "plan 1\n";
  const auto append = [&](absl::string_view what, const Layout& layout) {
    absl::StrAppend(&text, what, " ", layout.mesh().ToString(), " ",
                    layout.ToString(), "\n");
  };
  append("from", plan.source());
  for (const Step& step : plan.steps()) {
    append(absl::StrCat(StepKindName(step.kind), "(", step.AxisNames(), ")"),
           step.after);
  }
  append("to", plan.target());
  return text;
}

// Where the step leads, its mesh where it is another one.
std::string DescribeAfter(const Step& step) {
  std::string text = step.after.PlacementsToString();
  if (step.after.mesh() == step.before.mesh()) return text;
  return absl::StrCat(text, " on '", step.after.mesh().ToString(), "'");
}

// What the rank with the largest piece holds.
int64_t LargestPieceBytes(const Layout& layout) {
  return layout.MostElements() * SizeOf(layout.dtype());
}

TableRow RowOf(const Step& step, int64_t workspace_bytes) {
  return {std::string(StepKindName(step.kind)),
          step.AxisNames(),
          absl::StrCat(step.before.PlacementsToString(), " -> ",
                       DescribeAfter(step)),
          absl::StrCat(step.bytes_received),
          absl::StrCat(step.messages),
          absl::StrCat(workspace_bytes),
          FormatMicroseconds(step.time_ps)};
}

}  // namespace

absl::string_view StepKindName(StepKind kind) {
  switch (kind) {
    case StepKind::kRelabel:
      return "relabel";
    case StepKind::kSlice:
      return "slice";
    case StepKind::kFill:
      return "fill";
    case StepKind::kScale:
      return "scale";
    case StepKind::kAllGather:
      return "all_gather";
    case StepKind::kReduceScatter:
      return "reduce_scatter";
    case StepKind::kAllReduce:
      return "all_reduce";
    case StepKind::kAllToAll:
      return "all_to_all";
    case StepKind::kExchange:
      return "exchange";
  }
  return "";
}

absl::string_view StepKindShortName(StepKind kind) {
  switch (kind) {
    case StepKind::kRelabel:
      return "RL";
    case StepKind::kSlice:
      return "SL";
    case StepKind::kFill:
      return "FI";
    case StepKind::kScale:
      return "SC";
    case StepKind::kAllGather:
      return "AG";
    case StepKind::kReduceScatter:
      return "RS";
    case StepKind::kAllReduce:
      return "AR";
    case StepKind::kAllToAll:
      return "A2A";
    case StepKind::kExchange:
      return "XC";
  }
  return "";
}

std::optional<StepKind> ParseStepKind(absl::string_view name) {
  for (StepKind kind : kAllStepKinds) {
    if (name == StepKindName(kind)) return kind;
  }
  return std::nullopt;
}

int64_t Step::group_size() const {
  int64_t size = 1;
  for (int axis : axes) size *= before.mesh().axis(axis).size;
  return size;
}

std::string Step::AxisNames() const {
  return absl::StrJoin(axes, ",", [&](std::string* out, int axis) {
    absl::StrAppend(out, before.mesh().axis(axis).name);
  });
}

std::string Step::Name() const {
  return absl::StrCat(StepKindShortName(kind), "(", AxisNames(), ")");
}

int64_t Plan::bytes_received() const {
  return SumOverSteps(steps_, &Step::bytes_received);
}

int64_t Plan::launches() const {
  return std::count_if(steps_.begin(), steps_.end(),
                       [](const Step& s) { return Communicates(s.kind); });
}

int64_t Plan::time_ps() const { return SumOverSteps(steps_, &Step::time_ps); }

std::vector<int64_t> Plan::step_workspace_bytes() const {
  const std::vector<Storage> storage = internal::StorageOfSteps(steps_);
  std::vector<int64_t> result;
  int64_t held = 0;  // by the buffer that the value is in
  for (size_t i = 0; i < steps_.size(); ++i) {
    const int64_t made = storage[i] == Storage::kNewBuffer
                             ? LargestPieceBytes(steps_[i].after)
                             : 0;
    result.push_back(SaturatingAdd(held, made));
    if (storage[i] != Storage::kWorkspace) held = made;
  }
  return result;
}

int64_t Plan::workspace_bytes() const {
  int64_t most = 0;
  for (int64_t bytes : step_workspace_bytes()) most = std::max(most, bytes);
  return most;
}

int64_t Plan::peak_bytes() const {
  const int64_t ends =
      SaturatingAdd(LargestPieceBytes(source_), LargestPieceBytes(target_));
  return SaturatingAdd(ends, workspace_bytes());
}

uint64_t Plan::fingerprint() const {
  return internal::StableHash(CanonicalText(*this));
}

std::string Plan::ToString() const {
  std::string text = source_.PlacementsToString();
  for (const Step& step : steps_) {
    absl::StrAppend(&text, " -", step.Name(), "-> ", DescribeAfter(step));
  }
  return text;
}

std::string Plan::ToTable() const {
  const std::vector<int64_t> workspace = step_workspace_bytes();
  std::vector<TableRow> rows;
  rows.push_back({"step", "axes", "before -> after", "bytes", "messages",
                  "workspace", "time us"});
  for (size_t i = 0; i < steps_.size(); ++i) {
    rows.push_back(RowOf(steps_[i], workspace[i]));
  }
  rows.push_back({"total", "", "", absl::StrCat(bytes_received()),
                  absl::StrCat(SumOverSteps(steps_, &Step::messages)),
                  absl::StrCat(workspace_bytes()),
                  FormatMicroseconds(time_ps())});
  return internal::FormatTable(rows, /*text_columns=*/3);
}

}  // namespace tessera
