#ifndef TESSERA_TOOLS_TESSERA_CHECK_COMMAND_H_
#define TESSERA_TOOLS_TESSERA_CHECK_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/tessera/program.h"

namespace CLI {
class App;
}

namespace tessera::tools {

// `tessera check`: compares golden files (tessera/testing/golden_plans.h) with
// what the planner makes.
class CheckCommand {
 public:
  // LIFETIME: the app writes to this object when it parses.
  void AddFlags(CLI::App& app);
  absl::StatusOr<Outcome> Run() const;

 private:
  std::vector<std::string> paths_;
  bool update_ = false;
  std::string topology_ = "unit";
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_CHECK_COMMAND_H_
