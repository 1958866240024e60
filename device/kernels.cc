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

bool CanCast(DType dst, DType src) {
  if (IsFloating(dst)) return true;
  return !IsFloating(src) && SizeOf(dst) >= SizeOf(src);
}

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
  const bool wide = dst.dtype() == DType::kF32 || dst.dtype() == DType::kF64;
  if (!wide || !IsFloating(src.dtype())) {
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
