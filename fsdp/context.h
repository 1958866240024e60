#ifndef TESSERA_FSDP_CONTEXT_H_
#define TESSERA_FSDP_CONTEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/comm_set.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/device.h"
#include "tessera/fsdp/memory_plan.h"
#include "tessera/fsdp/optimizer_shard.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/unit.h"

namespace tessera {

enum class ZeroGrad {
  kFill,     // main gradients stay allocated and become zero
  kRelease,  // their memory is given back; the next backward allocates anew
};

struct MicrobatchOptions {
  // Whether the gradients are complete after this microbatch's backwards.
  bool is_last = true;
};

// Sets is_last for all backwards while it is open. Ends with Finish or when
// destroyed. One at a time.
class Microbatch {
 public:
  Microbatch(Microbatch&& other) noexcept;
  Microbatch& operator=(Microbatch&&) = delete;
  ~Microbatch();

  // Ends the scope. Returns the first error of the context, if any.
  absl::Status Finish();

 private:
  friend class Context;
  Microbatch(internal::Runtime* runtime, bool is_last);

  internal::Runtime* runtime_;  // null once ended
};

// The data-parallel training of one model on one rank: units with weights,
// gradients and main weights placed as FsdpOptions say, and the communication
// that goes with it. No strategy has a branch: placements say everything.
//
//   TESSERA_ASSIGN_OR_RETURN(auto context,
//                            Context::Create(options, world, stream));
//   UnitBuilder builder = context->NewUnit("block0");
//   const ParameterId w = builder.Add("w", meta);
//   TESSERA_ASSIGN_OR_RETURN(Unit* unit, builder.Build());
//   TESSERA_RETURN_IF_ERROR(context->Prepare());
//   TESSERA_RETURN_IF_ERROR(unit->LoadWeight(w, values));
//   SgdOptimizer optimizer(*context, learning_rate);
//   for (int m = 0; m < count; ++m) {
//     Microbatch scope = context->OpenMicrobatch({.is_last = m + 1 == count});
//     unit->BeforeForward();
//     ...  // compute with unit->weight(w)
//     unit->AfterForward();
//     unit->BeforeBackward();
//     ...  // write unit->grad(w, GradientWrite::kOverwrite)
//     unit->AfterBackward();
//     TESSERA_RETURN_IF_ERROR(scope.Finish());
//   }
//   TESSERA_RETURN_IF_ERROR(optimizer.Step());
//   TESSERA_RETURN_IF_ERROR(context->ZeroGradients(ZeroGrad::kRelease));
//
// Gradient arithmetic. Wire reductions are sums. In every backward the
// unreduced gradient is reduced over the Flat axes of the gradient placements,
// one axis at a time in cut order, in ascending coordinates, accumulated in
// f32 and rounded to the wire dtype once per axis; then
//
//   main_grad += accumulation(reduced) * s
//
// with s = 1 / (N * grad_divisor) for kMean, 1 / grad_divisor for kSum, N the
// product of the unit's data-parallel axes, over the loss scale and the wire
// pre-scale, which are powers of two and round nothing; product and sum round
// separately, and main_grad starts at +0.0. The deferred axes hold partial sums
// until the last backward reduces them in place, in the accumulation dtype:
// first the axes that become Flat, then those that become R, each in cut order.
// A backward after that, without zeroing, first makes the value partial again
// (kept at coordinate 0 of what was R, as a piece among identities of what was
// Flat) and adds to it.
//
// Errors are sticky: after the first one every hook is a no-op, and
// everything that returns a Status returns it. A rank without memory, one whose
// gradient hook or update in a step fails, and one that others have left in the
// lurch, aborts the context's communicators, lent ones as well, so that nobody
// waits for it. Training goes on in a new context and on a new compute stream
// then. One call at a time, from any thread. Destruction is not collective; it
// waits for the streams. LIFETIME: borrows the world communicator, the compute
// stream and its device.
class Context {
 public:
  // `world` spans the ranks that the mesh speaks of; communicators along mesh
  // axes are made from it. `compute` is the stream on which the trainer
  // computes; the context makes three more on its device: for gathers,
  // reductions and finalization.
  // ERRORS: InvalidArgument for axes, a cut order or lent communicators that do
  // not fit, or a rank outside the mesh. What units take from the options is
  // checked where they are built.
  static absl::StatusOr<std::unique_ptr<Context>> Create(FsdpOptions options,
                                                         Communicator& world,
                                                         Stream& compute);
  ~Context();

  // Starts a unit. Units are the same on all ranks, in the same order.
  UnitBuilder NewUnit(absl::string_view name, UnitOptions options = {});

  // Ends registration: compares it between all ranks of the mesh, makes the
  // communicators and allocates everything but main gradients. COLLECTIVE over
  // the mesh. ERRORS, all sticky but the last: FailedPrecondition, on every
  // rank, where ranks differ, naming the first difference; ResourceExhausted;
  // FailedPrecondition on a second call.
  absl::Status Prepare();

  // Opens a microbatch. An error (one is open) is sticky.
  Microbatch OpenMicrobatch(MicrobatchOptions options = {});

  // What the trainer multiplies its loss by, and so the gradients that it
  // writes: AfterBackward divides its contribution by what is set then. The
  // same on all ranks. 1 at first. ERRORS: InvalidArgument for anything but a
  // power of two from 2^-64 to 2^64; nothing changes.
  absl::Status set_loss_scale(double scale);
  double loss_scale() const;

  // Updates the main weights: calls `update` for every group whose gradient is
  // final, in registration order, to enqueue its work on the compute stream,
  // then refreshes the weights that units gather. This is what the optimizers
  // of optimizer.h do, and all that others have to: element by element, on flat
  // shards. Groups without a gradient since the last zeroing are left out.
  // COLLECTIVE over the data-parallel axes. ERRORS: FailedPrecondition for a
  // unit with a partial gradient or an outstanding forward, naming it; for no
  // final gradient at all; the sticky error.
  absl::Status Step(
      absl::FunctionRef<absl::Status(const OptimizerShard&, Stream&)> update);

  // The same for optimizers that do more than update element by element: those
  // that communicate, in one go for all groups. Calls `update` once, with all
  // groups whose gradient is final, in registration order.
  // COLLECTIVE and ERRORS: as Step.
  absl::Status StepTogether(
      absl::FunctionRef<absl::Status(absl::Span<const OptimizerShard>, Stream&)>
          update);

  // Calls `visit` for every group whose gradient is final, in registration
  // order, before Step: to enqueue work on the compute stream that reads the
  // gradient, or changes it in the pieces. ERRORS: as Step's, with `what` in
  // the place of its name.
  absl::Status VisitGradients(
      absl::string_view what,
      absl::FunctionRef<absl::Status(const OptimizerShard&, Stream&)> visit);

  // Enqueues on the compute stream: `x` becomes the sum over all ranks of the
  // mesh, the same bits on each. COLLECTIVE over the mesh. ERRORS, sticky:
  // those of Communicator::AllReduce. Not sticky: FailedPrecondition before
  // Prepare.
  absl::Status SumOverRanks(const TensorView& x);

  // All groups with gradients, in registration order: what Step will hand to
  // `update`. ERRORS: FailedPrecondition before Prepare.
  absl::StatusOr<std::vector<OptimizerShard>> optimizer_shards() const;

  // Makes all main gradients zero; both ways train the same, bit for bit.
  // ERRORS: FailedPrecondition inside a backward; the sticky error.
  absl::Status ZeroGradients(ZeroGrad how);

  // The first error of any hook, call or stream so far; does not wait.
  absl::Status status() const;
  // Blocks until all streams are idle. Returns the first error.
  absl::Status Synchronize();
  // What the compute stream and the context's own are given from now on, any of
  // them, comes after all that any of them was given so far; the host does not
  // wait. Before and after a step that is captured in a CUDA graph, and around
  // its replays: those streams are then captured with the compute stream.
  absl::Status JoinStreams();

  absl::Span<const std::unique_ptr<Unit>> units() const;
  Stream& compute() const;
  const DeviceMesh& mesh() const;
  int rank() const;
  // Of all ranks of the mesh, on the compute stream. ERRORS: FailedPrecondition
  // before Prepare.
  absl::StatusOr<Communicator*> mesh_communicator() const;
  // The communicators of this rank, for what communicates beside the context.
  CommSet& comms() const;
  // What PlanMemory says of the units: what Device::memory() counts.
  std::vector<UnitMemory> unit_memory() const;
  // One table per unit: placements and axes, flat layout of each group,
  // padding.
  std::string ToTable() const;

 private:
  explicit Context(std::unique_ptr<internal::Runtime> runtime);

  absl::Status DoPrepare();

  absl::Status CheckPrepared() const;
  // The communicator of all ranks of the mesh.
  absl::StatusOr<Communicator*> Everyone() const;

  // Calls `visit` for every unit with groups whose gradient is final, and the
  // indices of these, once the compute stream waits for it. ERRORS: as Step's.
  absl::Status VisitFinalUnits(
      absl::string_view what,
      absl::FunctionRef<absl::Status(Unit&, absl::Span<const int>)> visit);
  // `status`, with words before its message, once it is remembered.
  absl::Status Remember(absl::string_view prefix, absl::Status status);
  // The same for what a function of the caller's returns, of which other ranks
  // may know nothing.
  absl::Status RememberAlone(absl::string_view prefix, absl::Status status);

  // The mesh axes that some unit communicates along.
  std::vector<int> UsedAxes() const;
  // One line per unit and parameter: what ranks must agree on.
  std::string RegistrationText() const;

  const std::unique_ptr<internal::Runtime> runtime_;
};

}  // namespace tessera

#endif  // TESSERA_FSDP_CONTEXT_H_
