#ifndef TESSERA_FSDP_GRADIENT_NORM_H_
#define TESSERA_FSDP_GRADIENT_NORM_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/device/host_scalar.h"
#include "tessera/fsdp/context.h"

namespace tessera {

// The tag of the memory that a GradientNorm takes: 8 bytes.
inline constexpr absl::string_view kGradientNormTag = "gradient_norm";

// The L2 norm of all gradients of a context, over all ranks of its mesh, for
// clipping, for logs, and to see whether they are finite.
//
//   TESSERA_ASSIGN_OR_RETURN(auto norm, GradientNorm::Create(*context));
//   ...  // backwards, the last one included
//   TESSERA_RETURN_IF_ERROR(norm.Clip(/*max_norm=*/1.0));
//   TESSERA_RETURN_IF_ERROR(optimizer.Step());
//   TESSERA_ASSIGN_OR_RETURN(const double value, norm.Value());
//
// Every element of every parameter counts once: of ranks that hold the same
// piece, along data-parallel axes or others, the first along each of these axes
// counts it. Squares are added in f64, by Kernels::AddSquares over neighbouring
// pieces, in registration order, then over the ranks; padding is not read. The
// value is the same on every rank, bit for bit; other placements and meshes
// round differently, in f64.
//
// The host waits for nothing before it asks for the value. One call at a time.
// LIFETIME: borrows the context, and dies before its compute stream.
class GradientNorm {
 public:
  // For a context that is prepared. ERRORS: FailedPrecondition before
  // Context::Prepare; ResourceExhausted.
  static absl::StatusOr<GradientNorm> Create(Context& context);

  // Enqueues on the compute stream: computes the norm. COLLECTIVE over the
  // mesh. Groups without a gradient since the last zeroing are left out. ERRORS
  // as Context::Step's.
  absl::Status Compute();

  // Computes the norm, and scales all gradients where it is above `max_norm`,
  // as Kernels::ClipToNorm, PyTorch's definition. The norm stays what it was
  // before that; gradients with a norm that is not finite stay as they are.
  // COLLECTIVE and ERRORS: as Compute, and InvalidArgument, with nothing
  // computed, for a max_norm that is not finite or below 0.
  absl::Status Clip(double max_norm);

  // The norm computed last. Blocks until it is there. ERRORS:
  // FailedPrecondition where none was computed; the compute stream's.
  absl::StatusOr<double> Value() const;

  // OK where the norm computed last is finite. Blocks until it is there; only
  // where it is not are gradients looked at again. COLLECTIVE over the mesh.
  // ERRORS: FailedPrecondition, the same on every rank, naming the first
  // parameter, in registration order, with elements that are infinite or NaN,
  // and the first rank that has them; those of Value and Compute;
  // ResourceExhausted on a rank that cannot count, Aborted with its words on
  // the others.
  absl::Status CheckFinite();

 private:
  // What this rank has to do with the parameters of a unit.
  struct UnitParts {
    int first;                  // of them, among those of all units
    std::vector<bool> counted;  // whether this rank counts its piece
  };

  GradientNorm(Context& context, HostScalar squares,
               std::map<const Unit*, UnitParts> units)
      : context_(&context),
        squares_(std::move(squares)),
        units_(std::move(units)) {}

  // By parameter of all units: how many elements of this rank's piece are
  // infinite or NaN. Blocks.
  absl::StatusOr<std::vector<double>> CountNonFinite();
  // "unit 'block0' parameter 'weight'".
  std::string NameOf(int parameter) const;

  Context* context_;
  HostScalar squares_;
  std::map<const Unit*, UnitParts> units_;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_GRADIENT_NORM_H_
