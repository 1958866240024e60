#include "tessera/sweep/sweep.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tessera/base/status_macros.h"
#include "tessera/sweep/cases.h"
#include "tessera/sweep/measure.h"

namespace tessera {
namespace {

using Factors = std::vector<int>;

// Appends `factors` followed by every way to write `rest` as a product.
void AppendProducts(int rest, Factors& factors, std::vector<Factors>& all) {
  if (rest == 1) {
    all.push_back(factors);
    return;
  }
  for (int factor = 2; factor <= rest; ++factor) {
    if (rest % factor != 0) continue;
    factors.push_back(factor);
    AppendProducts(rest / factor, factors, all);
    factors.pop_back();
  }
}

// With axes called a, b, c, ...
std::string MeshText(absl::Span<const std::string> sizes) {
  std::string text;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    absl::StrAppend(&text, axis == 0 ? "" : ",",
                    std::string(1, static_cast<char>('a' + axis)), "=",
                    sizes[axis]);
  }
  return text;
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c >= '0' && c <= '9';
  });
}

}  // namespace

double SweepRow::MemcpyRatio() const { return seconds / memcpy_seconds; }

std::optional<double> SweepRow::BareRatio() const {
  if (!bare_seconds.has_value()) return std::nullopt;
  return seconds / *bare_seconds;
}

double SweepRow::AlgBandwidth() const {
  return static_cast<double>(bytes) / seconds;
}

double SweepRow::BusBandwidth() const {
  return static_cast<double>(bytes_received) / seconds;
}

absl::Status RunSweep(const SweepSpec& spec,
                      absl::FunctionRef<void(const SweepRow&)> sink) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<internal::SweepCase> cases,
                           internal::SweepCases(spec));
  for (const internal::SweepCase& sweep_case : cases) {
    TESSERA_ASSIGN_OR_RETURN(const SweepRow row,
                             internal::Measure(sweep_case, spec));
    sink(row);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceMesh>> Factorizations(int world) {
  constexpr int kMostRanks = 65536;
  if (world < 1 || world > kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sweep: want a world of 1 to ", kMostRanks, " ranks, found ", world));
  }
  std::vector<Factors> products;
  Factors factors;
  if (world == 1) products = {{1}};
  if (world > 1) AppendProducts(world, factors, products);
  std::stable_sort(
      products.begin(), products.end(),
      [](const Factors& a, const Factors& b) { return a.size() < b.size(); });
  std::vector<DeviceMesh> meshes;
  for (const Factors& product : products) {
    TESSERA_ASSIGN_OR_RETURN(DeviceMesh mesh,
                             ParseSweepMesh(absl::StrJoin(product, "x")));
    meshes.push_back(std::move(mesh));
  }
  return meshes;
}

absl::StatusOr<DeviceMesh> ParseSweepMesh(absl::string_view text) {
  constexpr size_t kMostAxes = 26;  // a to z
  const std::vector<std::string> sizes = absl::StrSplit(text, 'x');
  const bool is_product = std::all_of(sizes.begin(), sizes.end(), IsNumber);
  if (!is_product || sizes.size() > kMostAxes) return DeviceMesh::Parse(text);
  return DeviceMesh::Parse(MeshText(sizes));
}

}  // namespace tessera
