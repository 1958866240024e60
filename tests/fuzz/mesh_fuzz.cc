// Parses texts as meshes.

#include <cstddef>
#include <cstdint>
#include <string>

#include "tessera/mesh/device_mesh.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::testing::CheckParser(
      std::string(reinterpret_cast<const char*>(data), size),
      [](const std::string& text) { return tessera::DeviceMesh::Parse(text); },
      [](const tessera::DeviceMesh& mesh) { return mesh.ToString(); });
  return 0;
}
