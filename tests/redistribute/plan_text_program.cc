// Plans a fixed list of redistributions on as many threads as the argument
// says, and prints the plans in the order of the list.

#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/mesh/topology.h"
#include "tessera/redistribute/planner.h"
#include "tests/redistribute/all_layouts.h"

namespace tessera {
namespace {

struct Task {
  Layout source;
  Layout target;
  Topology topology;
};

// Some pairs of layouts, by all kinds of prices.
std::vector<Task> Tasks() {
  std::vector<Task> tasks;
  const std::vector<Topology> topologies = {
      Topology::Unit(), Topology::LocalCpu(),
      Topology::Preset("h100-ib").value()};
  for (const char* mesh : {"x=2,y=3", "x=2,y=2,z=2"}) {
    for (const char* meta : {"f32[6,10]", "bf16[4096,4096]"}) {
      const std::vector<Layout> layouts = testing::AllLayouts(
          TensorMeta::Parse(meta).value(), DeviceMesh::Parse(mesh).value(),
          {ReduceOp::kSum});
      for (size_t i = 0; i < 25; ++i) {
        tasks.push_back({layouts[7 * i % layouts.size()],
                         layouts[11 * i % layouts.size()],
                         topologies[i % topologies.size()]});
      }
    }
  }
  return tasks;
}

std::string TextOf(const Task& task) {
  const Plan plan = MakePlan(task.source, task.target, task.topology).value();
  return absl::StrCat(plan.ToString(), "\n", plan.ToTable(), plan.fingerprint(),
                      "\n");
}

void PrintPlans(int num_threads) {
  const std::vector<Task> tasks = Tasks();
  std::vector<std::string> texts(tasks.size());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < num_threads; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = thread; i < tasks.size(); i += num_threads) {
        texts[i] = TextOf(tasks[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) std::cout << text;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::PrintPlans(argc > 1 ? std::atoi(argv[1]) : 1);
}
