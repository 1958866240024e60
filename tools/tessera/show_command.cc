#include "tools/tessera/show_command.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "tessera/base/file.h"
#include "tessera/base/status_macros.h"
#include "tools/tessera/grid.h"
#include "tools/tessera/picture.h"
#include "tools/tessera/values.h"

namespace tessera::tools {

void ShowCommand::AddFlags(CLI::App& app) {
  app.add_option("--mesh", mesh_, "Mesh axes, outer before inner: dp=2,tp=4")
      ->required();
  app.add_option("--shape", shape_, "Extents of the tensor: 4096,14336")
      ->required();
  app.add_option("--dtype", dtype_, "f32, f64, bf16, f16, i32 or i64")
      ->capture_default_str();
  app.add_option("--layout", layout_, "What to show: \"[S(0), R]\"")
      ->required();
  app.add_option("--svg", svg_path_, "File for a picture");
}

absl::StatusOr<Outcome> ShowCommand::Run() const {
  TESSERA_ASSIGN_OR_RETURN(const DeviceMesh mesh, ParseMesh("--mesh", mesh_));
  TESSERA_ASSIGN_OR_RETURN(const TensorMeta meta, ParseTensor(dtype_, shape_));
  TESSERA_ASSIGN_OR_RETURN(const Layout layout,
                           ParseLayout("--layout", layout_, meta, mesh));
  TESSERA_ASSIGN_OR_RETURN(const std::string grid, DrawGrid(layout));
  if (!svg_path_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::string picture, DrawLayout(layout));
    TESSERA_RETURN_IF_ERROR(internal::WriteFile(svg_path_, picture));
  }
  const int64_t most = layout.MostElements() * SizeOf(layout.dtype());
  return Outcome{absl::StrCat(layout.ToString(), " on mesh '", mesh.ToString(),
                              "': ", mesh.size(), " ranks, at most ",
                              FormatBytes(most), " each\n\n", grid)};
}

}  // namespace tessera::tools
