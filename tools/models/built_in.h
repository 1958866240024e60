#ifndef TESSERA_TOOLS_MODELS_BUILT_IN_H_
#define TESSERA_TOOLS_MODELS_BUILT_IN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/models/model.h"

namespace tessera::tools {

// The models whose files lie in this folder. The build embeds them: no file is
// read at run time.
std::vector<std::string> BuiltInModelNames();
// ERRORS: InvalidArgument for another name, listing these.
absl::StatusOr<Model> BuiltInModel(absl::string_view name);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_MODELS_BUILT_IN_H_
