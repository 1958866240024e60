#ifndef TESSERA_TOOLS_TESSERA_LAYOUT_REPORT_H_
#define TESSERA_TOOLS_TESSERA_LAYOUT_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/dbuffer/flat_layout.h"
#include "tools/models/model.h"

namespace tessera::tools {

// What flat layouts make of a model.
struct LayoutReport {
  // The padding by other systems' rules, in elements: see padding_rules.h.
  struct Others {
    int64_t megatron_fsdp = 0;
    int64_t fsdp2 = 0;
  };

  Model model;
  int64_t ranks = 1;
  Granularity granularity = {};
  DType dtype = DType::kBF16;
  // One per unit of the model, of one of its repeats.
  std::vector<FlatLayout> layouts = {};
  std::vector<Others> others = {};  // if wanted

  // ERRORS: those of FlatLayout::Create and of the rules, with the unit.
  static absl::StatusOr<LayoutReport> Create(Model model, int64_t ranks,
                                             const Granularity& granularity,
                                             DType dtype, bool compare);

  std::string ToTable() const;
  // As docs/layout.schema.json describes it.
  std::string ToJson() const;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_LAYOUT_REPORT_H_
