// The memory that kernels tell the race detector of: all of their operands, and
// nothing beside them.

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/emulation/run_emulated_gpus.h"
#include "tests/gpu/beside_cpu.h"
#include "tests/status_matchers.h"

namespace tessera::emulation {
namespace {

using ::tessera::testing::Operand;
using Views = testing::BesideCpu::Views;

constexpr int64_t kElements = 37;

// One element in front of the view, and one behind.
Operand InTheMiddle(DType dtype, const Shape& shape, const Dims& strides) {
  Operand operand = {dtype, shape, strides, 1, {}};
  const int64_t span = operand.ViewFrom(nullptr).SpanBytes();
  operand.memory.resize(span + 2 * SizeOf(dtype));
  return operand;
}
Operand Flat(DType dtype, int64_t n = kElements) {
  return InTheMiddle(dtype, Shape::Create({n}).value(), {1});
}
Operand Number() { return Flat(DType::kF64, 1); }
Operand Columns(DType dtype) {
  return InTheMiddle(dtype, Shape::Create({5, 3}).value(), {7, 1});
}

struct KernelCase {
  std::string name;
  std::vector<Operand> operands;
  std::vector<size_t> written;  // of the operands; all are read, or written
  std::function<absl::Status(Kernels&, Stream&, Views)> run;
};
std::ostream& operator<<(std::ostream& os, const KernelCase& kernel) {
  return os << kernel.name;
}

absl::Status Fill(Kernels& kernels, Stream& stream, Views x) {
  return kernels.Fill(stream, x[0], 1.0);
}
absl::Status Copy(Kernels& kernels, Stream& stream, Views x) {
  return kernels.Copy(stream, x[0], x[1]);
}
absl::Status Scale(Kernels& kernels, Stream& stream, Views x) {
  return kernels.Scale(stream, x[0], 0.5);
}

std::vector<KernelCase> AllKernels() {
  constexpr DType kF32 = DType::kF32;
  constexpr DType kBF16 = DType::kBF16;
  return {{"Fill", {Flat(kBF16)}, {0}, Fill},
          {"FillStrided", {Columns(kBF16)}, {0}, Fill},
          {"Copy", {Flat(kF32), Flat(kF32)}, {0}, Copy},
          {"CopyStrided", {Columns(kF32), Columns(kF32)}, {0}, Copy},
          {"Scale", {Flat(kF32)}, {0}, Scale},
          {"ScaleStrided", {Columns(kF32)}, {0}, Scale},
          {"Cast",
           {Flat(kBF16), Flat(kF32)},
           {0},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.Cast(stream, x[0], x[1]);
           }},
          {"Add",
           {Flat(kBF16), Flat(kBF16)},
           {0},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.Add(stream, x[0], x[1]);
           }},
          {"AccumulateScaled",
           {Flat(kF32), Flat(kBF16)},
           {0},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.AccumulateScaled(stream, x[0], x[1], 0.5);
           }},
          {"Sgd",
           {Flat(kF32), Flat(kF32), Flat(kF32)},
           {0, 2},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.Sgd(stream, x[0], x[1], x[2], {.momentum = 0.9});
           }},
          {"SgdFirst",
           {Flat(kF32), Flat(kF32), Flat(kF32)},
           {0, 2},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.Sgd(stream, x[0], x[1], x[2],
                                {.momentum = 0.9, .first = true});
           }},
          {"AdamW",
           {Flat(kF32), Flat(kF32), Flat(kF32), Flat(kF32)},
           {0, 2, 3},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.AdamW(stream, x[0], x[1], x[2], x[3], {});
           }},
          {"AddSquares",
           {Number(), Flat(kF32)},
           {0},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.AddSquares(stream, x[0], x[1]);
           }},
          {"CountNonFinite",
           {Number(), Flat(kF32)},
           {0},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.CountNonFinite(stream, x[0], x[1]);
           }},
          {"ClipToNorm",
           {Flat(kF32), Number()},
           {0},
           [](Kernels& kernels, Stream& stream, Views x) {
             return kernels.ClipToNorm(stream, x[0], x[1], 1.0);
           }}};
}

class KernelRangesTest : public ::testing::TestWithParam<KernelCase> {
 protected:
  // What another stream does with one element of the memory of an operand, in
  // no order with the kernel.
  enum class Access { kRead, kWrite };
  absl::Status RunBeside(Access access, int64_t element, size_t operand) {
    double host;
    return RunEmulatedGpus(1, [&](GpuRank& rank) -> absl::Status {
      Kernels& kernels = rank.device.kernels();
      TESSERA_ASSIGN_OR_RETURN(const auto stream, rank.device.NewStream("a"));
      TESSERA_ASSIGN_OR_RETURN(const auto other, rank.device.NewStream("b"));
      std::vector<Buffer> buffers;
      std::vector<TensorView> views;
      for (const Operand& x : GetParam().operands) {
        TESSERA_ASSIGN_OR_RETURN(
            Buffer buffer,
            rank.device.Allocate(static_cast<int64_t>(x.memory.size()), "x"));
        views.push_back(x.ViewAt(buffer.data()));
        buffers.push_back(std::move(buffer));
      }
      const TensorView touched = GetParam()
                                     .operands[operand]
                                     .FlatAt(buffers[operand].data())
                                     .Slice(0, {element, element + 1});
      TESSERA_RETURN_IF_ERROR(access == Access::kWrite
                                  ? kernels.Fill(*other, touched, 1.0)
                                  : kernels.CopyToHost(*other, &host, touched));
      TESSERA_RETURN_IF_ERROR(GetParam().run(kernels, *stream, views));
      TESSERA_RETURN_IF_ERROR(stream->Synchronize());
      return other->Synchronize();
    });
  }

  int64_t ElementsOf(size_t operand) const {
    const Operand& x = GetParam().operands[operand];
    return x.FlatAt(nullptr).num_elements();
  }
};

TEST_P(KernelRangesTest, RacesWithWritesOfTheEndsOfOperandsAreFound) {
  for (size_t k = 0; k < GetParam().operands.size(); ++k) {
    for (int64_t element : {int64_t{1}, ElementsOf(k) - 2}) {
      EXPECT_EQ(RunBeside(Access::kWrite, element, k).code(),
                absl::StatusCode::kFailedPrecondition)
          << "element " << element << " of operand " << k;
    }
  }
}

TEST_P(KernelRangesTest, RacesWithReadsOfTheEndsOfWhatIsWrittenAreFound) {
  for (size_t k : GetParam().written) {
    for (int64_t element : {int64_t{1}, ElementsOf(k) - 2}) {
      EXPECT_EQ(RunBeside(Access::kRead, element, k).code(),
                absl::StatusCode::kFailedPrecondition)
          << "element " << element << " of operand " << k;
    }
  }
}

TEST_P(KernelRangesTest, MemoryBesideTheOperandsIsFree) {
  for (size_t k = 0; k < GetParam().operands.size(); ++k) {
    for (int64_t element : {int64_t{0}, ElementsOf(k) - 1}) {
      EXPECT_OK(RunBeside(Access::kWrite, element, k));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, KernelRangesTest, ::testing::ValuesIn(AllKernels()),
    [](const ::testing::TestParamInfo<KernelCase>& kernel) {
      return kernel.param.name;
    });

}  // namespace
}  // namespace tessera::emulation
