#ifndef TESSERA_TOOLS_TESSERA_SHOW_COMMAND_H_
#define TESSERA_TOOLS_TESSERA_SHOW_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/tessera/program.h"

namespace CLI {
class App;
}

namespace tessera::tools {

// `tessera show`: who holds what, as a grid; its picture.
class ShowCommand {
 public:
  // LIFETIME: the app writes to this object when it parses.
  void AddFlags(CLI::App& app);
  absl::StatusOr<Outcome> Run() const;

 private:
  std::string mesh_;
  std::string shape_;
  std::string dtype_ = "bf16";
  std::string layout_;
  std::string svg_path_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_SHOW_COMMAND_H_
