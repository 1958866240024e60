#include "tools/models/built_in.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/models/embedded.h"

namespace tessera::tools {

std::vector<std::string> BuiltInModelNames() {
  std::vector<std::string> names;
  for (const EmbeddedModel& model : EmbeddedModels()) {
    names.emplace_back(model.name);
  }
  return names;
}

absl::StatusOr<Model> BuiltInModel(absl::string_view name) {
  for (const EmbeddedModel& model : EmbeddedModels()) {
    if (model.name == name) return ParseModel(model.json);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model: no built-in model '", name, "', want one of ",
                   absl::StrJoin(BuiltInModelNames(), ", ")));
}

}  // namespace tessera::tools
