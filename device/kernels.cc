#include "tessera/device/kernels.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tessera/base/status_macros.h"

namespace tessera {
namespace {

absl::Status Misfit(absl::string_view kernel, absl::string_view wanted,
                    const TensorView& dst, const TensorView& src) {
  return absl::InvalidArgumentError(
      absl::StrCat("kernels: ", kernel, " wants ", wanted, ", found dst ",
                   dst.ToString(), " and src ", src.ToString()));
}

absl::Status CheckContiguous(absl::string_view kernel, const TensorView& view) {
  if (view.IsContiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "kernels: ", kernel, " wants contiguous views, found ", view.ToString()));
}

// Both contiguous, with one number of elements.
absl::Status CheckFlatPair(absl::string_view kernel, const TensorView& dst,
                           const TensorView& src) {
  if (dst.num_elements() != src.num_elements()) {
    return Misfit(kernel, "one number of elements", dst, src);
  }
  TESSERA_RETURN_IF_ERROR(CheckContiguous(kernel, dst));
  return CheckContiguous(kernel, src);
}

// True if `value`, cut to a whole number, is one of `dtype`; for floats always.
bool Fits(DType dtype, double value) {
  if (IsFloating(dtype)) return true;
  const double bound = dtype == DType::kI32 ? 0x1p31 : 0x1p63;
  const double whole = std::trunc(value);
  return whole >= -bound && whole < bound;
}

bool IsWide(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64;
}

// OK for a number, and what it is about.
absl::Status CheckSum(absl::string_view kernel, const TensorView& sum,
                      const TensorView& x) {
  if (sum.dtype() != DType::kF64 || sum.num_elements() != 1 ||
      !IsWide(x.dtype())) {
    return Misfit(kernel, "one f64 dst and an f32 or f64 src", sum, x);
  }
  return CheckContiguous(kernel, x);
}

// OK for a weight with its gradient.
absl::Status CheckUpdate(absl::string_view kernel, const TensorView& weight,
                         const TensorView& gradient) {
  if (!IsWide(weight.dtype()) || !IsWide(gradient.dtype())) {
    return Misfit(kernel, "an f32 or f64 weight and gradient", weight,
                  gradient);
  }
  return CheckFlatPair(kernel, weight, gradient);
}

// OK for what an optimizer keeps of a weight.
absl::Status CheckKept(absl::string_view kernel, const TensorView& weight,
                       const TensorView& kept) {
  if (kept.dtype() != weight.dtype()) {
    return Misfit(kernel, "one dtype", weight, kept);
  }
  return CheckFlatPair(kernel, weight, kept);
}

// Operations on one element.
int64_t FlopsOf(const SgdUpdate& update) {
  int64_t flops = 2;
  if (update.weight_decay != 0) flops += 2;
  if (update.momentum != 0 && !update.first) flops += 3;
  if (update.momentum != 0 && update.nesterov) flops += 2;
  return flops;
}
constexpr int64_t kAdamWFlops = 14;

}  // namespace

absl::Status Kernels::Fill(Stream& stream, const TensorView& dst,
                           double value) {
  if (!Fits(dst.dtype(), value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernels: fill value ", value, " does not fit ", dst.ToString()));
  }
  const MemoryRange writes[] = {dst};
  return stream.Launch(
      {.name = "fill", .writes = writes, .bytes = dst.num_bytes()},
      FillBody(stream, dst, value));
}

absl::Status Kernels::Copy(Stream& stream, const TensorView& dst,
                           const TensorView& src) {
  if (dst.meta() != src.meta()) {
    return Misfit("copy", "one dtype and shape", dst, src);
  }
  const MemoryRange reads[] = {src};
  const MemoryRange writes[] = {dst};
  return stream.Launch({.name = "copy",
                        .reads = reads,
                        .writes = writes,
                        .bytes = src.num_bytes() + dst.num_bytes()},
                       CopyBody(stream, dst, src));
}

absl::Status Kernels::Cast(Stream& stream, const TensorView& dst,
                           const TensorView& src) {
  if (!CanCast(dst.dtype(), src.dtype())) {
    return Misfit("cast", "floats, or integers made no narrower", dst, src);
  }
  TESSERA_RETURN_IF_ERROR(CheckFlatPair("cast", dst, src));
  const MemoryRange reads[] = {src};
  const MemoryRange writes[] = {dst};
  return stream.Launch({.name = "cast",
                        .reads = reads,
                        .writes = writes,
                        .bytes = src.num_bytes() + dst.num_bytes()},
                       CastBody(stream, dst, src));
}

absl::Status Kernels::Scale(Stream& stream, const TensorView& x,
                            double factor) {
  if (!IsFloating(x.dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernels: scale wants floats, found ", x.ToString()));
  }
  const MemoryRange ranges[] = {x};
  return stream.Launch({.name = "scale",
                        .reads = ranges,
                        .writes = ranges,
                        .bytes = 2 * x.num_bytes(),
                        .flops = x.num_elements()},
                       ScaleBody(stream, x, factor));
}

absl::Status Kernels::Add(Stream& stream, const TensorView& dst,
                          const TensorView& src) {
  if (dst.dtype() != src.dtype()) return Misfit("add", "one dtype", dst, src);
  TESSERA_RETURN_IF_ERROR(CheckFlatPair("add", dst, src));
  const MemoryRange reads[] = {dst, src};
  const MemoryRange writes[] = {dst};
  return stream.Launch({.name = "add",
                        .reads = reads,
                        .writes = writes,
                        .bytes = src.num_bytes() + 2 * dst.num_bytes(),
                        .flops = dst.num_elements()},
                       AddBody(stream, dst, src));
}

absl::Status Kernels::AccumulateScaled(Stream& stream, const TensorView& dst,
                                       const TensorView& src, double scale) {
  if (!IsWide(dst.dtype()) || !IsFloating(src.dtype())) {
    return Misfit("accumulate_scaled", "an f32 or f64 dst and a float src", dst,
                  src);
  }
  TESSERA_RETURN_IF_ERROR(CheckFlatPair("accumulate_scaled", dst, src));
  const MemoryRange reads[] = {dst, src};
  const MemoryRange writes[] = {dst};
  return stream.Launch({.name = "accumulate_scaled",
                        .reads = reads,
                        .writes = writes,
                        .bytes = src.num_bytes() + 2 * dst.num_bytes(),
                        .flops = 2 * dst.num_elements()},
                       AccumulateScaledBody(stream, dst, src, scale));
}

absl::Status Kernels::Sgd(Stream& stream, const TensorView& weight,
                          const TensorView& gradient,
                          const TensorView& momentum, const SgdUpdate& update) {
  TESSERA_RETURN_IF_ERROR(CheckUpdate("sgd", weight, gradient));
  LaunchDescriptor descriptor = {
      .name = "sgd",
      .bytes = 2 * weight.num_bytes() + gradient.num_bytes(),
      .flops = FlopsOf(update) * weight.num_elements()};
  if (update.momentum == 0) {
    const MemoryRange reads[] = {weight, gradient};
    const MemoryRange writes[] = {weight};
    descriptor.reads = reads;
    descriptor.writes = writes;
    return stream.Launch(descriptor,
                         SgdBody(stream, weight, gradient, momentum, update));
  }
  TESSERA_RETURN_IF_ERROR(CheckKept("sgd", weight, momentum));
  const MemoryRange reads[] = {weight, gradient, momentum};
  const MemoryRange writes[] = {weight, momentum};
  descriptor.reads = absl::MakeConstSpan(reads, update.first ? 2 : 3);
  descriptor.writes = writes;
  descriptor.bytes += (update.first ? 1 : 2) * momentum.num_bytes();
  return stream.Launch(descriptor,
                       SgdBody(stream, weight, gradient, momentum, update));
}

absl::Status Kernels::AdamW(Stream& stream, const TensorView& weight,
                            const TensorView& gradient,
                            const TensorView& first_moment,
                            const TensorView& second_moment,
                            const AdamWUpdate& update) {
  TESSERA_RETURN_IF_ERROR(CheckUpdate("adamw", weight, gradient));
  TESSERA_RETURN_IF_ERROR(CheckKept("adamw", weight, first_moment));
  TESSERA_RETURN_IF_ERROR(CheckKept("adamw", weight, second_moment));
  if (update.step < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernels: adamw wants a step of at least 1, found ", update.step));
  }
  const MemoryRange reads[] = {weight, gradient, first_moment, second_moment};
  const MemoryRange writes[] = {weight, first_moment, second_moment};
  return stream.Launch(
      {.name = "adamw",
       .reads = reads,
       .writes = writes,
       .bytes = 6 * weight.num_bytes() + gradient.num_bytes(),
       .flops = kAdamWFlops * weight.num_elements()},
      AdamWBody(stream, weight, gradient, first_moment, second_moment, update));
}

absl::Status Kernels::AddSquares(Stream& stream, const TensorView& sum,
                                 const TensorView& x) {
  TESSERA_RETURN_IF_ERROR(CheckSum("add_squares", sum, x));
  const MemoryRange reads[] = {sum, x};
  const MemoryRange writes[] = {sum};
  return stream.Launch({.name = "add_squares",
                        .reads = reads,
                        .writes = writes,
                        .bytes = x.num_bytes() + 2 * sum.num_bytes(),
                        .flops = 2 * x.num_elements()},
                       AddSquaresBody(stream, sum, x));
}

absl::Status Kernels::CountNonFinite(Stream& stream, const TensorView& count,
                                     const TensorView& x) {
  TESSERA_RETURN_IF_ERROR(CheckSum("count_non_finite", count, x));
  const MemoryRange reads[] = {count, x};
  const MemoryRange writes[] = {count};
  return stream.Launch({.name = "count_non_finite",
                        .reads = reads,
                        .writes = writes,
                        .bytes = x.num_bytes() + 2 * count.num_bytes(),
                        .flops = x.num_elements()},
                       CountNonFiniteBody(stream, count, x));
}

absl::Status Kernels::ClipToNorm(Stream& stream, const TensorView& x,
                                 const TensorView& squares, double max_norm) {
  TESSERA_RETURN_IF_ERROR(CheckSum("clip_to_norm", squares, x));
  if (!(max_norm >= 0) || !std::isfinite(max_norm)) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernels: clip_to_norm wants a finite norm of at least 0, "
                     "found ",
                     max_norm));
  }
  const MemoryRange reads[] = {x, squares};
  const MemoryRange writes[] = {x};
  return stream.Launch({.name = "clip_to_norm",
                        .reads = reads,
                        .writes = writes,
                        .bytes = 2 * x.num_bytes() + squares.num_bytes(),
                        .flops = x.num_elements()},
                       ClipToNormBody(stream, x, squares, max_norm));
}

absl::Status Kernels::CopyFromHost(Stream& stream, const TensorView& dst,
                                   const void* host) {
  TESSERA_RETURN_IF_ERROR(CheckContiguous("copy_from_host", dst));
  const MemoryRange writes[] = {dst};
  return stream.Launch(
      {.name = "copy_from_host", .writes = writes, .bytes = dst.num_bytes()},
      CopyFromHostBody(stream, dst, host));
}

absl::Status Kernels::CopyToHost(Stream& stream, void* host,
                                 const TensorView& src) {
  TESSERA_RETURN_IF_ERROR(CheckContiguous("copy_to_host", src));
  const MemoryRange reads[] = {src};
  return stream.Launch(
      {.name = "copy_to_host", .reads = reads, .bytes = src.num_bytes()},
      CopyToHostBody(stream, host, src));
}

}  // namespace tessera
