// What collectives of the backend mpi cost beside those of the MPI library
// itself, which reduce in an order of their own. Run by mpirun.
//
// Ranks run all by turns; a turn takes as long as its slowest rank. `ratio` is
// the median of Tessera's turns over that of MPI's: where ranks meet and
// compare their calls, and unchecked. Writes the JSON of Google Benchmark, as
// far as bench.py reads it.

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "bench/smoke.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/mpi/mpi_world.h"
#include "tessera/device/cpu/cpu_device.h"

namespace tessera {
namespace {

// Bytes of the larger of send and recv.
constexpr int64_t kSizes[] = {1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20};

// A collective of either library on the same memory.
struct Pair {
  std::string name;
  int64_t bytes;
  std::function<absl::Status(Communicator&)> tessera;
  std::function<void()> mpi;
};

// A way to run Tessera's.
struct Mode {
  std::string name;
  std::unique_ptr<Communicator> comm;
};

class Bench {
 public:
  Bench(std::vector<Mode> modes, const std::string& filter)
      : modes_(std::move(modes)),
        filter_(filter),
        send_(*std::max_element(std::begin(kSizes), std::end(kSizes)) / 4),
        recv_(send_.size()) {}

  absl::Status RunAll() {
    for (const int64_t bytes : kSizes) {
      if (IsSmoke() && bytes > kSizes[0]) continue;
      for (const Pair& pair : PairsOf(bytes)) {
        TESSERA_RETURN_IF_ERROR(Run(pair));
      }
    }
    return absl::OkStatus();
  }

  // {"benchmarks": [...]}
  std::string ToJson() const {
    return absl::StrCat("{\"benchmarks\": [\n", absl::StrJoin(found_, ",\n"),
                        "\n]}\n");
  }

 private:
  int n() const { return modes_.front().comm->size(); }
  TensorView Floats(std::vector<float>& memory, int64_t count) {
    return TensorView::Flat(memory.data(), DType::kF32, count);
  }

  std::vector<Pair> PairsOf(int64_t bytes) {
    const int64_t all = bytes / 4;
    const int64_t piece = all / n();
    const auto count = static_cast<int>(all);
    const auto each = static_cast<int>(piece);
    float* const send = send_.data();
    float* const recv = recv_.data();
    return {
        {"AllReduce", bytes,
         [=, this](Communicator& comm) {
           return comm.AllReduce(ReduceOp::kSum, Floats(send_, all),
                                 Floats(recv_, all));
         },
         [=] {
           MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
         }},
        {"ReduceScatter", bytes,
         [=, this](Communicator& comm) {
           return comm.ReduceScatter(ReduceOp::kSum, Floats(send_, piece * n()),
                                     Floats(recv_, piece));
         },
         [=] {
           MPI_Reduce_scatter_block(send, recv, each, MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD);
         }},
        {"AllGather", bytes,
         [=, this](Communicator& comm) {
           return comm.AllGather(Floats(send_, piece),
                                 Floats(recv_, piece * n()));
         },
         [=] {
           MPI_Allgather(send, each, MPI_FLOAT, recv, each, MPI_FLOAT,
                         MPI_COMM_WORLD);
         }},
        {"AllToAll", bytes,
         [=, this](Communicator& comm) {
           return comm.AllToAll(Floats(send_, piece * n()), 0, {},
                                Floats(recv_, piece * n()), 0, {});
         },
         [=] {
           MPI_Alltoall(send, each, MPI_FLOAT, recv, each, MPI_FLOAT,
                        MPI_COMM_WORLD);
         }},
        {"Broadcast", bytes,
         [=, this](Communicator& comm) {
           return comm.Broadcast(Floats(recv_, all), 0);
         },
         [=] { MPI_Bcast(recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }},
    };
  }

  absl::Status Run(const Pair& pair) {
    const std::string of_pair =
        absl::StrCat(pair.name, "/ranks:", n(), "/KiB:", pair.bytes >> 10);
    const bool is_wanted =
        std::any_of(modes_.begin(), modes_.end(), [&](const Mode& mode) {
          return std::regex_search(absl::StrCat(mode.name, " ", of_pair),
                                   filter_);
        });
    if (!is_wanted) return absl::OkStatus();
    const int64_t turns = TurnsOr(
        static_cast<int>(std::clamp<int64_t>((64 << 20) / pair.bytes, 15, 61)));
    const int64_t calls =
        IsSmoke() ? 1 : std::clamp<int64_t>((1 << 20) / pair.bytes, 1, 50);
    std::vector<std::vector<double>> ours(modes_.size());
    std::vector<double> theirs;
    absl::Status status;
    for (int64_t turn = 0; turn <= turns; ++turn) {
      for (size_t mode = 0; mode < modes_.size(); ++mode) {
        Communicator& comm = *modes_[mode].comm;
        const double seconds = SecondsOf(calls, [&] {
          status.Update(pair.tessera(comm));
          status.Update(comm.stream().Synchronize());
        });
        if (turn > 0) ours[mode].push_back(seconds);
      }
      const double seconds = SecondsOf(calls, pair.mpi);
      if (turn > 0) theirs.push_back(seconds);  // the first one warms up
    }
    TESSERA_RETURN_IF_ERROR(status);
    for (size_t mode = 0; mode < modes_.size(); ++mode) {
      const double median = Median(ours[mode]);
      found_.push_back(absl::StrCat(
          "{\"name\": \"", modes_[mode].name, " ", of_pair,
          "\", \"family_index\": 0, \"per_family_instance_index\": ",
          found_.size(), ", \"run_type\": \"iteration\", \"real_time\": ",
          median / calls * 1e6, ", \"time_unit\": \"us\", \"ratio\": ",
          median / Median(theirs), "}"));
    }
    return absl::OkStatus();
  }

  // Of the slowest rank.
  static double SecondsOf(int64_t calls, const std::function<void()>& call) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int64_t i = 0; i < calls; ++i) call();
    const double own = MPI_Wtime() - begin;
    double slowest = 0;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
  }
  static double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  const std::vector<Mode> modes_;
  const std::regex filter_;
  std::vector<float> send_;
  std::vector<float> recv_;
  std::vector<std::string> found_;  // as JSON
};

absl::Status RunBench(const std::string& filter, const std::string& out) {
  TESSERA_RETURN_IF_ERROR(StartMpi());
  CpuDevice device;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Mode> modes;
  for (const bool check : {true, false}) {
    MpiWorld::Options options;
    options.check = check;
    TESSERA_ASSIGN_OR_RETURN(MpiWorld world, MpiWorld::Create(options));
    TESSERA_ASSIGN_OR_RETURN(streams.emplace_back(),
                             device.NewStream("compute"));
    TESSERA_ASSIGN_OR_RETURN(auto comm, world.Join(*streams.back()));
    modes.push_back({check ? "mpi" : "mpi unchecked", std::move(comm)});
  }
  const int rank = modes.front().comm->rank();
  {
    Bench bench(std::move(modes), filter);
    TESSERA_RETURN_IF_ERROR(bench.RunAll());
    if (rank == 0) {
      if (out.empty()) std::cout << bench.ToJson();
      if (!out.empty()) std::ofstream(out) << bench.ToJson();
    }
  }
  streams.clear();
  return FinishMpi();
}

}  // namespace
}  // namespace tessera

// Takes --benchmark_filter and --benchmark_out, and no notice of others.
int main(int argc, char** argv) {
  std::string filter = ".*";
  std::string out;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--benchmark_filter=")) {
      filter = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "--benchmark_out=")) {
      out = std::string(argument);
    }
  }
  const absl::Status status = tessera::RunBench(filter, out);
  if (status.ok()) return 0;
  std::cerr << "mpi_bench: " << status << "\n";
  return 1;
}
