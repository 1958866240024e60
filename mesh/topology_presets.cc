#include <array>
#include <cstdint>
#include <iterator>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/mesh/topology.h"

namespace tessera {
namespace {

constexpr int64_t kMicrosecond = 1'000'000;  // in picoseconds
constexpr int64_t kGigabyte = 1'000'000'000;
constexpr int64_t kGigabit = kGigabyte / 8;

// NCCL's own cost model, file src/graph/tuning.cc (2024), for a ring with the
// low-latency protocol: what a collective takes before its first hop, and then
// each hop over NVLink and over a network.
constexpr int64_t kNcclLaunch = 6'600'000;          // 6.6 us
constexpr int64_t kNcclNvlinkLatency = 600'000;     // 0.6 us
constexpr int64_t kNcclNetworkLatency = 2'700'000;  // 2.7 us

struct Figures {
  absl::string_view name;
  Link link;
  int64_t launch_ps;
  int64_t memory_bytes_per_second;
  int domain_ranks = 1;  // 1: all links alike
  Link domain_link = {};
};

constexpr Figures kUnit = {
    .name = "unit",
    .link = {.latency_ps = 0, .bytes_per_second = 1000 * kGigabyte},
    .launch_ps = 0,
    .memory_bytes_per_second = 1'000'000 * kGigabyte,
};

// All assumed: the order of magnitude of a small server.
constexpr Figures kLocalCpu = {
    .name = "local-cpu",
    .link = {.latency_ps = 2 * kMicrosecond, .bytes_per_second = 8 * kGigabyte},
    .launch_ps = 1 * kMicrosecond,
    .memory_bytes_per_second = 10 * kGigabyte,
};

constexpr Figures kA100Hdr = {
    .name = "a100-hdr",
    // NVIDIA DGX A100 data sheet (2020): a 200 Gb/s HDR adapter for each GPU.
    .link = {.latency_ps = kNcclNetworkLatency,
             .bytes_per_second = 200 * kGigabit},
    .launch_ps = kNcclLaunch,
    // NVIDIA A100 data sheet (2021), 80 GB SXM: 2,039 GB/s.
    .memory_bytes_per_second = 2039 * kGigabyte,
    // NVIDIA DGX A100 data sheet (2020): 8 GPUs, all joined by NVSwitch.
    .domain_ranks = 8,
    // NVIDIA A100 data sheet (2021): NVLink 600 GB/s, both directions added.
    .domain_link = {.latency_ps = kNcclNvlinkLatency,
                    .bytes_per_second = 300 * kGigabyte},
};

constexpr Figures kH100Ib = {
    .name = "h100-ib",
    // NVIDIA DGX H100 data sheet (2022): a 400 Gb/s NDR adapter for each GPU.
    .link = {.latency_ps = kNcclNetworkLatency,
             .bytes_per_second = 400 * kGigabit},
    .launch_ps = kNcclLaunch,
    // NVIDIA H100 data sheet (2022), SXM: 3.35 TB/s.
    .memory_bytes_per_second = 3350 * kGigabyte,
    // NVIDIA DGX H100 data sheet (2022): 8 GPUs, all joined by NVSwitch.
    .domain_ranks = 8,
    // NVIDIA H100 data sheet (2022): NVLink 900 GB/s, both directions added.
    .domain_link = {.latency_ps = kNcclNvlinkLatency,
                    .bytes_per_second = 450 * kGigabyte},
};

constexpr Figures kGb200Nvl72 = {
    .name = "gb200-nvl72",
    // NVIDIA DGX GB200 data sheet (2024): a 400 Gb/s adapter for each GPU.
    .link = {.latency_ps = kNcclNetworkLatency,
             .bytes_per_second = 400 * kGigabit},
    .launch_ps = kNcclLaunch,
    // NVIDIA GB200 NVL72 data sheet (2024): 576 TB/s for 72 GPUs.
    .memory_bytes_per_second = 8000 * kGigabyte,
    // NVIDIA GB200 NVL72 data sheet (2024): one NVLink domain of 72 GPUs, 1.8
    // TB/s for each, both directions added.
    .domain_ranks = 72,
    .domain_link = {.latency_ps = kNcclNvlinkLatency,
                    .bytes_per_second = 900 * kGigabyte},
};

constexpr Figures kEthernet100G = {
    .name = "ethernet-100g",
    // The latency, of TCP through the kernel, is assumed. IEEE 802.3ba (2010):
    // 100 Gb/s in each direction.
    .link = {.latency_ps = 10 * kMicrosecond,
             .bytes_per_second = 100 * kGigabit},
    // Assumed, as for threads.
    .launch_ps = kLocalCpu.launch_ps,
    // AMD EPYC 7003 data sheet (2021): 204.8 GB/s a socket, 8 channels of
    // DDR4-3200.
    .memory_bytes_per_second = 2048 * (kGigabyte / 10),
};

constexpr Figures kPresets[] = {kLocalCpu,   kA100Hdr,      kH100Ib,
                                kGb200Nvl72, kEthernet100G, kUnit};

constexpr auto kPresetNames = [] {
  std::array<absl::string_view, std::size(kPresets)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kPresets[i].name;
  return names;
}();

Topology Make(const Figures& figures) {
  const Topology uniform =
      Topology::Create(figures.name, figures.link, figures.launch_ps,
                       figures.memory_bytes_per_second)
          .value();
  if (figures.domain_ranks == 1) return uniform;
  return uniform.WithDomain(figures.domain_ranks, figures.domain_link).value();
}

}  // namespace

absl::StatusOr<Topology> Topology::Preset(absl::string_view name) {
  for (const Figures& figures : kPresets) {
    if (figures.name == name) return Make(figures);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("topology: no preset '", name, "', want one of ",
                   absl::StrJoin(kPresetNames, ", ")));
}

absl::Span<const absl::string_view> Topology::PresetNames() {
  return kPresetNames;
}

Topology Topology::Unit() { return Make(kUnit); }

Topology Topology::LocalCpu() { return Make(kLocalCpu); }

}  // namespace tessera
