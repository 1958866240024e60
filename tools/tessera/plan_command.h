#ifndef TESSERA_TOOLS_TESSERA_PLAN_COMMAND_H_
#define TESSERA_TOOLS_TESSERA_PLAN_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/tessera/program.h"

namespace CLI {
class App;
}

namespace tessera::tools {

// `tessera plan`: the cheapest way from one layout to another as a table or, as
// docs/plan.schema.json describes it, as JSON; its picture.
class PlanCommand {
 public:
  // LIFETIME: the app writes to this object when it parses.
  void AddFlags(CLI::App& app);
  absl::StatusOr<Outcome> Run() const;

 private:
  std::string mesh_;
  std::string to_mesh_;
  std::string shape_;
  std::string dtype_ = "bf16";
  std::string from_;
  std::string to_;
  std::string topology_ = "h100-ib";
  std::string max_workspace_;
  int alternatives_ = 0;
  bool json_ = false;
  std::string svg_path_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_PLAN_COMMAND_H_
