#include "char_lm/report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "char_lm/parameter.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/coalesced_all_reduce.h"
#include "tessera/mesh/topology.h"
#include "tessera/placement/layout.h"
#include "tessera/redistribute/planner.h"

namespace char_lm {
namespace {

std::string Heading(absl::string_view title) {
  return absl::StrCat("\n== ", title, " ==\n");
}

double RelativeDifference(double a, double b) {
  return std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// The steps whose losses are printed: about eight, the last among them.
bool IsShown(size_t step, size_t steps) {
  const size_t stride = std::max<size_t>(1, (steps + 6) / 7);
  return step % stride == 0 || step + 1 == steps;
}

std::map<std::string, int64_t> CountedPeaks(
    const tessera::MemoryReport& report) {
  std::map<std::string, int64_t> peaks;
  for (const auto& [tag, usage] : report.by_tag) peaks[tag] = usage.peak_bytes;
  return peaks;
}

int64_t Total(const std::map<std::string, int64_t>& bytes) {
  int64_t total = 0;
  for (const auto& [tag, count] : bytes) total += count;
  return total;
}

int64_t Find(const std::map<std::string, int64_t>& bytes,
             const std::string& tag) {
  const auto it = bytes.find(tag);
  return it == bytes.end() ? 0 : it->second;
}

// Removes what comes and goes within a step, and returns its bytes: the
// workspace of redistributions, what NCCL packs, the loss on a GPU, and chunks
// of the all-reduce along "tp".
int64_t TakeTransient(std::map<std::string, int64_t>& peaks) {
  int64_t bytes = 0;
  for (const char* tag :
       {"workspace", "nccl staging", kLossTag, tessera::kCoalescedChunkTag}) {
    bytes += Find(peaks, tag);
    peaks.erase(tag);
  }
  return bytes;
}

// By axis and kind.
std::map<std::string, int64_t> BytesReceived(const TrainResult& result) {
  std::map<std::string, int64_t> bytes;
  for (const auto& [key, counter] : result.communication) {
    bytes[absl::StrCat(key.first, " ",
                       tessera::CollectiveKindName(key.second))] =
        counter.bytes_received;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> DescribeRun(const Options& options,
                                        const Text& text) {
  using tessera::Placement;
  std::string out = absl::StrFormat(
      "text: %s, %d characters, %d distinct\nmesh: %s, %d ranks as %s%s\n",
      options.text_path, text.tokens.size(), text.vocab_size(),
      options.mesh.ToString(), options.mesh.size(),
      options.process == nullptr ? "threads" : "processes",
      options.on_gpus() ? ", a GPU each" : "");
  const int axes = options.mesh.num_axes();
  if (axes == 0) return out;

  const ParameterSpec spec = BlockParameters(options.model)[kQkvWeight];
  std::vector<Placement> from(axes, Placement::Partial());
  std::vector<Placement> to(axes, Placement::Replicate());
  from.back() = Placement::Shard(0);
  to.back() = Placement::Shard(1);
  TESSERA_ASSIGN_OR_RETURN(
      const tessera::TensorMeta meta,
      tessera::TensorMeta::Create(tessera::DType::kF32, spec.shape));
  TESSERA_ASSIGN_OR_RETURN(const tessera::Layout source,
                           tessera::Layout::Create(meta, options.mesh, from));
  TESSERA_ASSIGN_OR_RETURN(const tessera::Layout target, source.With(to));
  TESSERA_ASSIGN_OR_RETURN(
      const tessera::Plan plan,
      tessera::MakePlan(source, target, tessera::Topology::LocalCpu()));
  absl::StrAppend(&out, Heading("a redistribution on this mesh"), spec.name,
                  " ", meta.ToString(), ": ", plan.ToString(), "\n",
                  plan.ToTable());
  return out;
}

Tolerances TolerancesOf(const Options& options) {
  Tolerances tolerances;
  // Gradients that are rounded to bf16 in other parts differ by one in 256.
  if (options.dtype == tessera::DType::kBF16) tolerances.big_batch = 2e-2;
  // The norm, and norm gradients along "tp", add up in another order, these
  // from other parts; under NCCL all gradients may.
  if (options.tensor_parallel_size() > 1 || options.on_gpus()) {
    tolerances.oracle = tolerances.big_batch;
  } else if (options.clip.has_value()) {
    tolerances.oracle = 1e-4;
  }
  return tolerances;
}

std::string DescribeLosses(const TrainResult& result,
                           const std::vector<double>& oracle,
                           const std::vector<double>& big_batch,
                           const Tolerances& tolerances) {
  std::string out = Heading("losses against one process");
  absl::StrAppendFormat(&out, "%6s  %-12s  %-12s  %-12s  %-15s  %s\n", "step",
                        "tessera", "oracle", "big batch", "rel. difference",
                        "norm");
  const auto worst_of = [&](const std::vector<double>& others) {
    double worst = 0;
    for (size_t i = 0; i < result.losses.size(); ++i) {
      worst = std::max(worst, RelativeDifference(result.losses[i], others[i]));
    }
    return worst;
  };
  for (size_t i = 0; i < result.losses.size(); ++i) {
    if (!IsShown(i, result.losses.size())) continue;
    absl::StrAppendFormat(
        &out, "%6d  %-12.8f  %-12.8f  %-12.8f  %-15.1e  %.4f\n", i,
        result.losses[i], oracle[i], big_batch[i],
        RelativeDifference(result.losses[i], big_batch[i]), result.norms[i]);
  }
  const bool equal = std::equal(result.losses.begin(), result.losses.end(),
                                oracle.begin(), oracle.end(), SameBits);
  std::string beside_oracle = equal ? "bitwise equal" : "DIFFERENT";
  if (!equal && tolerances.oracle > 0) {
    beside_oracle = absl::StrFormat("within %.1e of it, %.0e allowed",
                                    worst_of(oracle), tolerances.oracle);
  }
  absl::StrAppendFormat(
      &out, "oracle: %s; big batch: within %.1e of it, %.0e allowed\n",
      beside_oracle, worst_of(big_batch), tolerances.big_batch);
  return out;
}

absl::Status CheckLosses(const TrainResult& result,
                         const std::vector<double>& oracle,
                         const std::vector<double>& big_batch,
                         const Tolerances& tolerances) {
  // Written so that a NaN fails.
  const auto differ = [](double a, double b, double tolerance) {
    return tolerance == 0 ? !SameBits(a, b)
                          : !(RelativeDifference(a, b) <= tolerance);
  };
  for (size_t i = 0; i < result.losses.size(); ++i) {
    if (differ(result.losses[i], oracle[i], tolerances.oracle)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the loss of step %d is %.17g, that of the oracle %.17g", i,
          result.losses[i], oracle[i]));
    }
    if (differ(result.losses[i], big_batch[i], tolerances.big_batch)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the loss of step %d is %.9g, that of one big batch %.9g", i,
          result.losses[i], big_batch[i]));
    }
  }
  return absl::OkStatus();
}

std::string DescribeCommunication(const TrainResult& result) {
  size_t width = 12;  // of the longest name
  for (const auto& [key, counter] : result.communication) {
    width = std::max(width, key.first.size());
  }
  const auto pad = static_cast<int>(width);
  std::string out = Heading("communication of rank 0 in one step");
  absl::StrAppendFormat(&out, "%-*s %-16s %8s %16s\n", pad, "axis", "kind",
                        "calls", "bytes received");
  for (const auto& [key, counter] : result.communication) {
    absl::StrAppendFormat(&out, "%-*s %-16s %8d %16d\n", pad, key.first,
                          tessera::CollectiveKindName(key.second),
                          counter.calls, counter.bytes_received);
  }
  return out;
}

std::string DescribeMemory(const TrainResult& result) {
  std::string out = Heading("peak memory per rank, in bytes");
  absl::StrAppendFormat(&out, "%-18s %14s", "buffer", "formula");
  for (size_t r = 0; r < result.memory.size(); ++r) {
    absl::StrAppendFormat(&out, " %14s", absl::StrCat("rank ", r));
  }
  // The formula of rank 0; few tags differ between ranks.
  for (const auto& [tag, bytes] : result.planned_memory[0]) {
    absl::StrAppendFormat(&out, "\n%-18s %14d", tag, bytes);
    for (const auto& report : result.memory) {
      absl::StrAppendFormat(&out, " %14d", Find(CountedPeaks(report), tag));
    }
  }
  absl::StrAppendFormat(&out, "\n%-18s %14d", "total",
                        Total(result.planned_memory[0]));
  for (const auto& report : result.memory) {
    absl::StrAppendFormat(&out, " %14d", report.total.peak_bytes);
  }
  absl::StrAppend(&out, "\n");
  return out;
}

std::string DescribeSideBySide(const NamedResult& a, const NamedResult& b) {
  std::string out = Heading(absl::StrCat(a.name, " against ", b.name));
  const auto append_row = [&out](absl::string_view name, int64_t x, int64_t y) {
    absl::StrAppendFormat(&out, "%-28s %14d %14d\n", name, x, y);
  };
  const auto append_rows = [&](const std::map<std::string, int64_t>& x,
                               const std::map<std::string, int64_t>& y) {
    std::set<std::string> names;
    for (const auto& [name, bytes] : x) names.insert(name);
    for (const auto& [name, bytes] : y) names.insert(name);
    for (const std::string& name : names) {
      append_row(name, Find(x, name), Find(y, name));
    }
    append_row("total", Total(x), Total(y));
  };
  absl::StrAppendFormat(&out, "%-28s %14s %14s\n", "peak memory, bytes", a.name,
                        b.name);
  append_rows(a.result.planned_memory[0], b.result.planned_memory[0]);
  absl::StrAppend(&out, "received in a step, bytes\n");
  append_rows(BytesReceived(a.result), BytesReceived(b.result));
  return out;
}

absl::Status CheckMemory(const TrainResult& result) {
  for (size_t r = 0; r < result.memory.size(); ++r) {
    const auto& planned = result.planned_memory[r];
    auto counted = CountedPeaks(result.memory[r]);
    const int64_t transient = TakeTransient(counted);
    for (const auto& [tag, bytes] : planned) counted.try_emplace(tag, 0);
    for (const auto& [tag, bytes] : counted) {
      if (bytes == Find(planned, tag)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", r, " holds ", bytes, " bytes of ", tag,
                       " at its peak, the formula gives ", Find(planned, tag)));
    }
    const int64_t total = result.memory[r].total.peak_bytes;
    if (total < Total(planned) || total > Total(planned) + transient) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", r, " holds ", total,
          " bytes at its peak, the formula gives ", Total(planned)));
    }
  }
  return absl::OkStatus();
}

}  // namespace char_lm
