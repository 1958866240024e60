#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tessera/base/status_macros.h"
#include "tessera/fsdp/parameter_group.h"
#include "tessera/fsdp/runtime.h"
#include "tessera/fsdp/unit.h"

namespace tessera {

UnitBuilder::UnitBuilder(internal::Runtime& runtime, absl::string_view name,
                         UnitOptions options)
    : runtime_(runtime), name_(name), options_(std::move(options)) {}

ParameterId UnitBuilder::Add(absl::string_view name, const TensorMeta& meta,
                             ParameterOptions options) {
  const DeviceMesh& mesh = runtime_.options.mesh;
  const std::vector<Placement> replicated(mesh.num_axes());
  absl::StatusOr<Layout> layout = Layout::Create(meta, mesh, replicated);
  if (!layout.ok()) {
    argument_error_.Update(layout.status());
    layout = Layout();
  }
  return Add(name, *layout, options);
}

ParameterId UnitBuilder::Add(absl::string_view name, const Layout& layout,
                             ParameterOptions options) {
  for (const Unit::Parameter& other : parameters_) {
    if (other.name == name) {
      argument_error_.Update(absl::InvalidArgumentError(
          absl::StrCat("parameter '", name, "' is there already")));
    }
  }
  parameters_.push_back(
      {std::string(name), layout, options.requires_grad, nullptr, 0});
  return static_cast<ParameterId>(parameters_.size()) - 1;
}

absl::StatusOr<Unit*> UnitBuilder::Build() {
  TESSERA_RETURN_IF_ERROR(status_);
  absl::StatusOr<Unit*> unit = DoBuild();
  if (unit.ok()) return unit;
  status_ = internal::Prefixed(absl::StrCat("fsdp: unit '", name_, "': "),
                               unit.status());
  return status_;
}

absl::StatusOr<internal::DataParallelAxes> UnitBuilder::FindAxes() const {
  const internal::DataParallelAxes& defaults = runtime_.default_axes;
  std::vector<std::string> names =
      options_.data_parallel_axes.value_or(defaults.names());
  // The default order goes with the default axes only.
  std::vector<std::string> cut_order = options_.cut_order.value_or(
      options_.data_parallel_axes.has_value() ? std::vector<std::string>()
                                              : defaults.cut_names());
  return internal::DataParallelAxes::Create(
      runtime_.options.mesh, std::move(names), std::move(cut_order));
}

absl::StatusOr<Unit*> UnitBuilder::DoBuild() {
  TESSERA_RETURN_IF_ERROR(argument_error_);
  if (runtime_.prepare_called) {
    return absl::FailedPreconditionError("built after Context::Prepare");
  }
  for (const auto& unit : runtime_.units) {
    if (unit->name() != name_) continue;
    return absl::InvalidArgumentError("a unit of this name is there already");
  }
  if (options_.parent != nullptr && &options_.parent->runtime_ != &runtime_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its parent '", options_.parent->name(), "' is of another context"));
  }
  const FsdpOptions& defaults = runtime_.options;
  TESSERA_ASSIGN_OR_RETURN(internal::DataParallelAxes axes, FindAxes());
  UnitPlacements placements = options_.placements.value_or(defaults.placements);
  TESSERA_RETURN_IF_ERROR(
      ValidatePlacements(placements, axes.names(), axes.cut_names()));
  auto unit = std::unique_ptr<Unit>(
      new Unit(runtime_, static_cast<int>(runtime_.units.size()), name_,
               options_, std::move(axes), std::move(placements)));
  TESSERA_RETURN_IF_ERROR(unit->Register(
      std::move(parameters_), options_.precision.value_or(defaults.precision)));
  runtime_.units.push_back(std::move(unit));
  return runtime_.units.back().get();
}

}  // namespace tessera
