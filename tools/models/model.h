#ifndef TESSERA_TOOLS_MODELS_MODEL_H_
#define TESSERA_TOOLS_MODELS_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"

namespace tessera::tools {

// The parameters of a model, in units: groups that share a flat buffer, such as
// what FSDP gathers at once.
struct Model {
  struct Param {
    std::string name;
    Shape shape = {};
    friend bool operator==(const Param&, const Param&) = default;
  };
  struct Unit {
    std::string name;
    int64_t repeat = 1;  // how many of these units there are
    std::vector<Param> params = {};
    int64_t num_elements() const;  // of one of them
    friend bool operator==(const Unit&, const Unit&) = default;
  };

  std::string name;
  DType dtype = DType::kBF16;
  std::vector<Unit> units = {};
  int64_t num_elements() const;  // of all units
  friend bool operator==(const Model&, const Model&) = default;
};

// A model as JSON:
//
//   {
//     "model": "tiny", "dtype": "bf16", "total_elements": 1152,
//     "units": [
//       {"name": "embed", "params": [{"name": "wte", "shape": [64, 8]}]},
//       {"name": "layer", "repeat": 10, "params": [
//         {"name": "w", "shape": [8, 7]}, {"name": "b", "shape": [8]}
//       ]}
//     ]
//   }
//
// "total_elements" may be left out, and "repeat" where it is 1.
//
// ERRORS: InvalidArgument, saying where, for what is not of this form; a name
// that is empty, has other characters than printable ASCII without spaces, or
// repeats; no units, a unit without params, a tensor without elements; another
// total than the units have, or one that does not fit int64.
absl::StatusOr<Model> ParseModel(absl::string_view json);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_MODELS_MODEL_H_
