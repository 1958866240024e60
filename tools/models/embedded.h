#ifndef TESSERA_TOOLS_MODELS_EMBEDDED_H_
#define TESSERA_TOOLS_MODELS_EMBEDDED_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::tools {

struct EmbeddedModel {
  absl::string_view name;
  absl::string_view json;
};

// The files of the built-in models, by name. The build writes the source.
absl::Span<const EmbeddedModel> EmbeddedModels();

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_MODELS_EMBEDDED_H_
