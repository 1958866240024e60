#ifndef TESSERA_TESTS_GPU_BESIDE_CPU_H_
#define TESSERA_TESTS_GPU_BESIDE_CPU_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/device.h"
#include "tests/device/elementwise_reference.h"

// Kernels of a device, run beside those of a CPU on the same numbers.

namespace tessera::testing {

// A number near the middle between two halves: above, below, or there.
template <typename T>
T NearTie(std::mt19937_64& rng) {
  if constexpr (std::is_integral_v<T>) {
    const int power = 12 + static_cast<int>(rng() % (8 * sizeof(T) - 13));
    const int half_step = power - (rng() % 2 == 0 ? 8 : 11);
    const auto value = (int64_t{1} << power) + (int64_t{1} << half_step) +
                       static_cast<int64_t>(rng() % 3) - 1;
    return static_cast<T>(rng() % 2 == 0 ? value : -value);
  } else {
    // Half a step of bf16 has bit 15 of a float, that of f16 bit 12.
    const auto start = static_cast<float>(RandomElement<BFloat16>(rng));
    const float middle = std::bit_cast<float>(
        std::bit_cast<uint32_t>(start) | (rng() % 2 == 0 ? 0x8000 : 0x1000));
    const double aside = (static_cast<double>(rng() % 3) - 1) * 0x1p-45;
    return FromExact<T>(static_cast<Exact>(middle) * (1 + aside));
  }
}

// What memory of a device holds, and the view of it that a kernel gets.
struct Operand {
  DType dtype;
  Shape shape;
  Dims strides;
  int64_t offset;  // elements in front of the view; others are behind it
  std::vector<std::byte> memory;

  TensorView ViewAt(void* begin) const {
    return ViewFrom(static_cast<std::byte*>(begin) + offset * SizeOf(dtype));
  }
  TensorView ViewFrom(void* first) const {
    return TensorView::Strided(first, TensorMeta::Create(dtype, shape).value(),
                               strides)
        .value();
  }
  TensorView FlatAt(void* begin) const {
    return TensorView::Flat(
        begin, dtype, static_cast<int64_t>(memory.size()) / SizeOf(dtype));
  }
  std::string ToString() const {
    return absl::StrCat(ViewFrom(nullptr).ToString(), " + ", offset);
  }
};

// Random numbers, and some that are hard to round.
inline Operand RandomOperand(std::mt19937_64& rng, DType dtype,
                             const Shape& shape, const Dims& strides,
                             int64_t offset) {
  constexpr int64_t kBehind = 9;
  Operand operand = {dtype, shape, strides, offset, {}};
  const int64_t span = operand.ViewFrom(nullptr).SpanBytes();
  const int64_t n = offset + span / SizeOf(dtype) + kBehind;
  operand.memory.resize(n * SizeOf(dtype));
  VisitDType(dtype, [&]<typename T>() {
    for (int64_t i = 0; i < n; ++i) {
      const T element =
          rng() % 4 == 0 ? NearTie<T>(rng) : RandomElement<T>(rng);
      std::memcpy(&operand.memory[i * sizeof(T)], &element, sizeof(T));
    }
  });
  return operand;
}

inline Operand RandomFlat(std::mt19937_64& rng, DType dtype, int64_t n,
                          int64_t offset = 0) {
  return RandomOperand(rng, dtype, Shape::Create({n}).value(), {1}, offset);
}

// The first element of the operand's memory that two memories have otherwise;
// any NaN equals any other.
inline ::testing::AssertionResult SameMemory(
    const Operand& operand, const std::vector<std::byte>& found,
    const std::vector<std::byte>& want) {
  return VisitDType(operand.dtype, [&]<typename T>() {
    std::vector<T> x(found.size() / sizeof(T));
    std::vector<T> y(x.size());
    std::memcpy(x.data(), found.data(), found.size());
    std::memcpy(y.data(), want.data(), want.size());
    return AllSame(x, y) << ", " << operand.ToString();
  });
}

// Runs kernels on a device, and on a CPU, from the same memory.
class BesideCpu {
 public:
  using Views = absl::Span<const TensorView>;
  using Kernel =
      absl::FunctionRef<absl::Status(Kernels&, Stream&, Views views)>;
  using Memory = std::vector<std::vector<std::byte>>;  // by operand

  // LIFETIME: borrows both.
  static absl::StatusOr<BesideCpu> Create(Device& device, Stream& stream) {
    BesideCpu result(device, stream);
    TESSERA_ASSIGN_OR_RETURN(result.cpu_stream_, result.cpu_->NewStream("cpu"));
    for (int k = 0; k < kMaxOperands; ++k) {
      TESSERA_ASSIGN_OR_RETURN(
          Buffer buffer, device.Allocate(kOperandBytes, "operand", &stream));
      result.buffers_.push_back(std::move(buffer));
    }
    return result;
  }
  BesideCpu(BesideCpu&&) = default;
  ~BesideCpu() {
    for (Buffer& buffer : buffers_) buffer.ResetAfter(stream_);
  }

  // Expects the device to leave in all memory what the CPU leaves there.
  absl::Status Check(const std::vector<Operand>& operands, Kernel kernel) {
    TESSERA_ASSIGN_OR_RETURN(const Memory want, RunOnCpu(operands, kernel));
    TESSERA_ASSIGN_OR_RETURN(const Memory found, RunOnDevice(operands, kernel));
    for (size_t k = 0; k < operands.size(); ++k) {
      EXPECT_TRUE(SameMemory(operands[k], found[k], want[k]))
          << "operand " << k;
    }
    return absl::OkStatus();
  }

  // What the memory of the operands is afterwards.
  absl::StatusOr<Memory> RunOnCpu(const std::vector<Operand>& operands,
                                  Kernel kernel) {
    Memory memory;
    std::vector<TensorView> views;
    for (const Operand& operand : operands) memory.push_back(operand.memory);
    for (size_t k = 0; k < operands.size(); ++k) {
      views.push_back(operands[k].ViewAt(memory[k].data()));
    }
    TESSERA_RETURN_IF_ERROR(kernel(cpu_->kernels(), *cpu_stream_, views));
    TESSERA_RETURN_IF_ERROR(cpu_stream_->Synchronize());
    return memory;
  }
  absl::StatusOr<Memory> RunOnDevice(const std::vector<Operand>& operands,
                                     Kernel kernel) {
    Kernels& kernels = device_.kernels();
    Memory memory;
    std::vector<TensorView> views;
    for (size_t k = 0; k < operands.size(); ++k) {
      memory.push_back(operands[k].memory);
      TESSERA_RETURN_IF_ERROR(kernels.CopyFromHost(
          stream_, operands[k].FlatAt(buffers_[k].data()), memory[k].data()));
      views.push_back(operands[k].ViewAt(buffers_[k].data()));
    }
    TESSERA_RETURN_IF_ERROR(kernel(kernels, stream_, views));
    for (size_t k = 0; k < operands.size(); ++k) {
      TESSERA_RETURN_IF_ERROR(kernels.CopyToHost(
          stream_, memory[k].data(), operands[k].FlatAt(buffers_[k].data())));
    }
    TESSERA_RETURN_IF_ERROR(stream_.Synchronize());
    return memory;
  }

 private:
  static constexpr int kMaxOperands = 4;
  static constexpr int64_t kOperandBytes = 1 << 18;

  BesideCpu(Device& device, Stream& stream)
      : device_(device),
        stream_(stream),
        cpu_(std::make_unique<CpuDevice>(
            CpuDevice::Options{.streams = CpuStreams::kInline})) {}

  Device& device_;
  Stream& stream_;
  std::unique_ptr<CpuDevice> cpu_;
  std::unique_ptr<Stream> cpu_stream_;
  std::vector<Buffer> buffers_;
};

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_GPU_BESIDE_CPU_H_
