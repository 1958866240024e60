#ifndef TESSERA_TOOLS_TESSERA_LAYOUT_COMMAND_H_
#define TESSERA_TOOLS_TESSERA_LAYOUT_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/tessera/program.h"

namespace CLI {
class App;
}

namespace tessera::tools {

// `tessera layout`: how much padding a model's flat layouts have, as a table or
// as JSON; the picture of one of them.
class LayoutCommand {
 public:
  // LIFETIME: the app writes to this object when it parses.
  void AddFlags(CLI::App& app);
  absl::StatusOr<Outcome> Run() const;

 private:
  std::string model_;
  int64_t ranks_ = 0;
  std::string granularity_ = "element";
  std::string dtype_;
  bool compare_ = false;
  bool json_ = false;
  std::string svg_path_;
  std::string unit_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_LAYOUT_COMMAND_H_
