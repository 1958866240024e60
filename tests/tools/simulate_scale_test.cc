// What `tessera simulate` itself takes for 131,072 ranks.

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/sanitized.h"

namespace tessera::testing {
namespace {

// What users build takes less than 2 s; builds for tests may be slower.
#ifdef __OPTIMIZE__
constexpr double kMostSeconds = kSanitized ? 60 : 2;
#else
constexpr double kMostSeconds = 60;
#endif

// The resources of the program with these arguments, once it has ended. Its
// output is dropped.
rusage ResourcesOf(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TESSERA_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ),
            0);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  rusage usage = {};
  EXPECT_EQ(wait4(pid, &status, 0, &usage), pid);
  EXPECT_EQ(status, 0);
  return usage;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_usec) / 1e6;
}

// The largest of the models, and the one with the most tensors, in two groups
// of ranks and in one.
TEST(SimulateScaleTest, TakesLittleTimeAndMemoryForManyRanks) {
  for (const char* model : {"llama-3.1-405b", "deepseek-v3"}) {
    for (const char* mesh : {"dp_outer=512,dp_inner=256", "dp=131072"}) {
      SCOPED_TRACE(std::string(model) + " on " + mesh);
      const rusage usage = ResourcesOf({"simulate", "--model", model, "--mesh",
                                        mesh, "--strategy", "hfsdp", "--tokens",
                                        "8192", "--microbatches", "4"});
      const double seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
      RecordProperty("processor_seconds", std::to_string(seconds));
      EXPECT_LT(seconds, kMostSeconds);
      if (kSanitized) continue;
      EXPECT_LT(usage.ru_maxrss, 200 << 10);  // KiB
    }
  }
}

}  // namespace
}  // namespace tessera::testing
