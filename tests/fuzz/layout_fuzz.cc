// Parses texts as layouts on a mesh of three axes. Of layouts on few elements
// it also asks what ranks hold.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tessera/placement/layout.h"
#include "tests/fuzz/fuzzed.h"

namespace {

using tessera::DeviceMesh;
using tessera::Layout;

const DeviceMesh& Mesh() {
  static const auto& mesh =
      *new DeviceMesh(DeviceMesh::Parse("x=2,y=3,z=1").value());
  return mesh;
}

void CheckRegions(const Layout& layout) {
  int64_t most = 0;
  for (int rank = 0; rank < layout.mesh().size(); ++rank) {
    most = std::max(most, layout.RegionOf(rank).num_elements());
  }
  if (most != layout.MostElements()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parse = [](const std::string& t) {
    return Layout::Parse(t, Mesh());
  };
  tessera::testing::CheckParser(
      text, parse, [](const Layout& layout) { return layout.ToString(); });
  if (const auto layout = parse(text); layout.ok()) CheckRegions(*layout);
  return 0;
}
