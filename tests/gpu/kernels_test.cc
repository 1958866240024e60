// The kernels of a GPU beside those of a CPU.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "tests/gpu/beside_cpu.h"
#include "tests/gpu/run_on_gpu.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::BesideCpu;
using ::tessera::testing::Operand;
using ::tessera::testing::RandomFlat;
using ::tessera::testing::RandomOperand;
using ::tessera::testing::RunOnGpu;
using ::tessera::testing::TestShapes;
using ::tessera::testing::TestStrides;
using Views = BesideCpu::Views;

constexpr int64_t kLengths[] = {0, 1, 7, 1023, 4096 + 3};
constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kBF16,
                             DType::kF16};
constexpr DType kWideFloats[] = {DType::kF32, DType::kF64};

// Elements in front of two views: aligned, in step, and out of step.
constexpr std::pair<int64_t, int64_t> kOffsets[] = {
    {0, 0}, {1, 1}, {3, 3}, {0, 1}, {2, 5}};

class GpuKernelsTest : public ::testing::Test {
 protected:
  void OnGpu(absl::FunctionRef<absl::Status(BesideCpu&)> program) {
    const absl::Status status =
        RunOnGpu([&](CudaDevice& device, Stream& stream) -> absl::Status {
          TESSERA_ASSIGN_OR_RETURN(BesideCpu beside,
                                   BesideCpu::Create(device, stream));
          return program(beside);
        });
    if (absl::IsUnavailable(status)) GTEST_SKIP() << status.message();
    EXPECT_OK(status);
  }

  // Runs `kernel` for all lengths on flat operands with these dtypes, aligned
  // and not.
  void OnFlat(std::vector<DType> dtypes, BesideCpu::Kernel kernel) {
    OnGpu([&](BesideCpu& beside) -> absl::Status {
      for (int64_t n : kLengths) {
        for (const auto& [first, others] : kOffsets) {
          std::vector<Operand> operands;
          for (DType dtype : dtypes) {
            operands.push_back(
                RandomFlat(rng_, dtype, n, operands.empty() ? first : others));
          }
          TESSERA_RETURN_IF_ERROR(beside.Check(operands, kernel));
        }
      }
      return absl::OkStatus();
    });
  }

  // Runs `kernel` on one operand of every shape and layout.
  void OnStrided(DType dtype, BesideCpu::Kernel kernel) {
    OnGpu([&](BesideCpu& beside) -> absl::Status {
      for (const Shape& shape : TestShapes()) {
        for (const Dims& strides : TestStrides(shape)) {
          for (int64_t offset : {0, 1, 4}) {
            const Operand x =
                RandomOperand(rng_, dtype, shape, strides, offset);
            TESSERA_RETURN_IF_ERROR(beside.Check({x}, kernel));
          }
        }
      }
      return absl::OkStatus();
    });
  }

  std::mt19937_64 rng_{20240611};
};

// --- Fill -------------------------------------------------------------------

TEST_F(GpuKernelsTest, FillsDenseViews) {
  for (DType dtype : kAllDTypes) {
    OnFlat({dtype}, [](Kernels& kernels, Stream& stream, Views views) {
      return kernels.Fill(stream, views[0], -2.75);
    });
  }
}

TEST_F(GpuKernelsTest, FillsStridedViews) {
  for (DType dtype : kAllDTypes) {
    OnStrided(dtype, [](Kernels& kernels, Stream& stream, Views views) {
      return kernels.Fill(stream, views[0], 1.0 + 0x1p-8 + 0x1p-40);
    });
  }
}

// --- Copy -------------------------------------------------------------------

TEST_F(GpuKernelsTest, CopiesDenseViews) {
  for (DType dtype : kAllDTypes) {
    OnFlat({dtype, dtype}, [](Kernels& kernels, Stream& stream, Views views) {
      return kernels.Copy(stream, views[0], views[1]);
    });
  }
}

TEST_F(GpuKernelsTest, CopiesBetweenAnyStrides) {
  for (DType dtype : kAllDTypes) {
    OnGpu([&](BesideCpu& beside) -> absl::Status {
      for (const Shape& shape : TestShapes()) {
        for (const Dims& to : TestStrides(shape)) {
          for (const Dims& from : TestStrides(shape)) {
            const auto& [dst, src] = kOffsets[rng_() % std::size(kOffsets)];
            TESSERA_RETURN_IF_ERROR(
                beside.Check({RandomOperand(rng_, dtype, shape, to, dst),
                              RandomOperand(rng_, dtype, shape, from, src)},
                             [](Kernels& kernels, Stream& stream, Views views) {
                               return kernels.Copy(stream, views[0], views[1]);
                             }));
          }
        }
      }
      return absl::OkStatus();
    });
  }
}

// Rows whose bytes, distances and beginnings are multiples of more and more
// bytes.
TEST_F(GpuKernelsTest, CopiesRowsByUnitsOfAllSizes) {
  for (DType dtype : kAllDTypes) {
    OnGpu([&](BesideCpu& beside) -> absl::Status {
      for (int64_t row : {1, 2, 4, 8, 16, 24, 31}) {
        for (int64_t gap : {1, 2, 4, 8}) {
          for (int64_t offset : {0, 1, 2, 4, 8}) {
            const Shape shape = Shape::Create({5, 3, row}).value();
            const Dims strides = {4 * (row + gap), row + gap, 1};
            TESSERA_RETURN_IF_ERROR(beside.Check(
                {RandomOperand(rng_, dtype, shape, strides, offset),
                 RandomOperand(rng_, dtype, shape, shape.RowMajorStrides(), 0)},
                [](Kernels& kernels, Stream& stream, Views views) {
                  return kernels.Copy(stream, views[0], views[1]);
                }));
          }
        }
      }
      return absl::OkStatus();
    });
  }
}

TEST_F(GpuKernelsTest, CopyBroadcastsAStrideOfZero) {
  OnGpu([&](BesideCpu& beside) {
    const Shape shape = Shape::Create({40, 8}).value();
    return beside.Check(
        {RandomOperand(rng_, DType::kF32, shape, shape.RowMajorStrides(), 0),
         RandomOperand(rng_, DType::kF32, shape, {0, 1}, 0)},
        [](Kernels& kernels, Stream& stream, Views views) {
          return kernels.Copy(stream, views[0], views[1]);
        });
  });
}

TEST_F(GpuKernelsTest, CopyOntoItselfChangesNothing) {
  OnFlat({DType::kF32}, [](Kernels& kernels, Stream& stream, Views views) {
    return kernels.Copy(stream, views[0], views[0]);
  });
}

TEST_F(GpuKernelsTest, CopyKeepsBits) {
  OnGpu([](BesideCpu& beside) -> absl::Status {
    for (DType dtype : kAllDTypes) {
      const Shape shape = Shape::Create({64, 32}).value();
      Operand src = {dtype, shape, {32, 1}, 0, {}};
      for (int i = 0; i < 64 * 32 * SizeOf(dtype) / 2; ++i) {
        const auto bits = static_cast<uint16_t>(0x7f00 + i);
        src.memory.push_back(static_cast<std::byte>(bits & 0xff));
        src.memory.push_back(static_cast<std::byte>(bits >> 8));
      }
      Operand dst = {dtype, shape, {1, 64}, 0, src.memory};
      const std::vector<Operand> operands = {dst, src};
      const auto copy = [](Kernels& kernels, Stream& stream, Views views) {
        return kernels.Copy(stream, views[0], views[1]);
      };
      TESSERA_ASSIGN_OR_RETURN(const auto found,
                               beside.RunOnDevice(operands, copy));
      TESSERA_ASSIGN_OR_RETURN(const auto want,
                               beside.RunOnCpu(operands, copy));
      EXPECT_EQ(found[0], want[0]) << dtype;
    }
    return absl::OkStatus();
  });
}

// --- Arithmetic on elements -------------------------------------------------

TEST_F(GpuKernelsTest, CastsAllPairs) {
  for (DType to : kAllDTypes) {
    for (DType from : kAllDTypes) {
      if (!CanCast(to, from)) continue;
      OnFlat({to, from}, [](Kernels& kernels, Stream& stream, Views views) {
        return kernels.Cast(stream, views[0], views[1]);
      });
    }
  }
}

// Every value of one, as the other.
TEST_F(GpuKernelsTest, CastsAllHalves) {
  OnGpu([&](BesideCpu& beside) -> absl::Status {
    for (DType from : {DType::kBF16, DType::kF16}) {
      for (DType to : kFloats) {
        if (to == from) continue;
        constexpr int64_t kValues = 1 << 14;
        for (int64_t begin = 0; begin < 1 << 16; begin += kValues) {
          Operand src = RandomFlat(rng_, from, kValues);
          for (int64_t i = 0; i < kValues; ++i) {
            const auto bits = static_cast<uint16_t>(begin + i);
            std::memcpy(&src.memory[2 * i], &bits, 2);
          }
          TESSERA_RETURN_IF_ERROR(
              beside.Check({RandomFlat(rng_, to, kValues), src},
                           [](Kernels& kernels, Stream& stream, Views views) {
                             return kernels.Cast(stream, views[0], views[1]);
                           }));
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_F(GpuKernelsTest, ScalesDenseViews) {
  for (DType dtype : kFloats) {
    OnFlat({dtype}, [](Kernels& kernels, Stream& stream, Views views) {
      return kernels.Scale(stream, views[0], 1.0 / 3.0);
    });
  }
}

TEST_F(GpuKernelsTest, ScalesStridedViews) {
  for (DType dtype : kFloats) {
    OnStrided(dtype, [](Kernels& kernels, Stream& stream, Views views) {
      return kernels.Scale(stream, views[0], 1.0 / 3.0);
    });
  }
}

TEST_F(GpuKernelsTest, Adds) {
  for (DType dtype : kAllDTypes) {
    OnFlat({dtype, dtype}, [](Kernels& kernels, Stream& stream, Views views) {
      return kernels.Add(stream, views[0], views[1]);
    });
  }
}

TEST_F(GpuKernelsTest, AccumulatesScaled) {
  for (DType to : kWideFloats) {
    for (DType from : kFloats) {
      OnFlat({to, from}, [](Kernels& kernels, Stream& stream, Views views) {
        return kernels.AccumulateScaled(stream, views[0], views[1], 1.0 / 3.0);
      });
    }
  }
}

// --- Optimizers -------------------------------------------------------------

TEST_F(GpuKernelsTest, StepsSgd) {
  const SgdUpdate updates[] = {
      {.learning_rate = 0.1},
      {.learning_rate = 0.1, .weight_decay = 0.01},
      {.learning_rate = 0.1, .momentum = 0.9, .first = true},
      {.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.3},
      {.learning_rate = 0.1,
       .momentum = 0.9,
       .weight_decay = 0.01,
       .nesterov = true}};
  for (DType dtype : kWideFloats) {
    for (DType gradient : kWideFloats) {
      for (const SgdUpdate& update : updates) {
        OnFlat({dtype, gradient, dtype}, [&](Kernels& kernels, Stream& stream,
                                             Views views) {
          return kernels.Sgd(stream, views[0], views[1], views[2], update);
        });
      }
    }
  }
}

TEST_F(GpuKernelsTest, StepsSgdWithoutMomentumThatIsNotThere) {
  OnFlat({DType::kF32, DType::kF32},
         [](Kernels& kernels, Stream& stream, Views views) {
           return kernels.Sgd(stream, views[0], views[1], TensorView(),
                              {.learning_rate = 0.1});
         });
}

TEST_F(GpuKernelsTest, StepsAdamW) {
  for (DType dtype : kWideFloats) {
    for (DType gradient : kWideFloats) {
      for (int64_t step : {1, 1000}) {
        OnFlat(
            {dtype, gradient, dtype, dtype},
            [&](Kernels& kernels, Stream& stream, Views views) {
              return kernels.AdamW(
                  stream, views[0], views[1], views[2], views[3],
                  {.learning_rate = 1e-3, .weight_decay = 0.01, .step = step});
            });
      }
    }
  }
}

// --- Norms ------------------------------------------------------------------

// One f64.
Operand Number(double value) {
  Operand operand = {DType::kF64, Shape::Create({1}).value(), {1}, 0, {}};
  operand.memory.resize(sizeof(value));
  std::memcpy(operand.memory.data(), &value, sizeof(value));
  return operand;
}

double ValueOf(const std::vector<std::byte>& memory) {
  double value;
  std::memcpy(&value, memory.data(), sizeof(value));
  return value;
}

// Finite numbers whose squares are.
Operand FiniteFlat(std::mt19937_64& rng, DType dtype, int64_t n,
                   int64_t offset) {
  Operand operand = RandomFlat(rng, dtype, n, offset);
  VisitDType(dtype, [&]<typename T>() {
    if constexpr (std::is_floating_point_v<T>) {
      std::normal_distribution<T> normal;
      for (size_t i = 0; i < operand.memory.size(); i += sizeof(T)) {
        const T value = normal(rng);
        std::memcpy(&operand.memory[i], &value, sizeof(T));
      }
    }
  });
  return operand;
}

absl::Status AddSquares(Kernels& kernels, Stream& stream, Views views) {
  return kernels.AddSquares(stream, views[0], views[1]);
}

TEST_F(GpuKernelsTest, AddsSquaresInAnOrderOfItsOwn) {
  OnGpu([&](BesideCpu& beside) -> absl::Status {
    for (DType dtype : kWideFloats) {
      for (int64_t n : {0, 1, 7, 1023, 4099, 30'001}) {
        const std::vector<Operand> operands = {Number(3.0),
                                               FiniteFlat(rng_, dtype, n, 0)};
        TESSERA_ASSIGN_OR_RETURN(const auto found,
                                 beside.RunOnDevice(operands, AddSquares));
        TESSERA_ASSIGN_OR_RETURN(const auto want,
                                 beside.RunOnCpu(operands, AddSquares));
        EXPECT_NEAR(ValueOf(found[0]), ValueOf(want[0]),
                    1e-12 * ValueOf(want[0]));
      }
    }
    return absl::OkStatus();
  });
}

TEST_F(GpuKernelsTest, SquaresDoNotDependOnAlignment) {
  OnGpu([&](BesideCpu& beside) -> absl::Status {
    for (DType dtype : kWideFloats) {
      const Operand x = FiniteFlat(rng_, dtype, 4099, 0);
      TESSERA_ASSIGN_OR_RETURN(const auto aligned,
                               beside.RunOnDevice({Number(0), x}, AddSquares));
      Operand moved = x;
      moved.offset = 1;
      moved.memory.insert(moved.memory.begin(), SizeOf(dtype), std::byte{0});
      TESSERA_ASSIGN_OR_RETURN(
          const auto found, beside.RunOnDevice({Number(0), moved}, AddSquares));
      EXPECT_EQ(ValueOf(found[0]), ValueOf(aligned[0]));
    }
    return absl::OkStatus();
  });
}

TEST_F(GpuKernelsTest, CountsNonFinite) {
  OnGpu([&](BesideCpu& beside) -> absl::Status {
    for (DType dtype : kWideFloats) {
      for (int64_t n : kLengths) {
        for (int64_t offset : {0, 1}) {
          TESSERA_RETURN_IF_ERROR(beside.Check(
              {Number(2.0), RandomFlat(rng_, dtype, n, offset)},
              [](Kernels& kernels, Stream& stream, Views views) {
                return kernels.CountNonFinite(stream, views[0], views[1]);
              }));
        }
      }
    }
    return absl::OkStatus();
  });
}

// Clipped, at the limit, below it, and not a norm.
TEST_F(GpuKernelsTest, ClipsToNorm) {
  const double inf = std::numeric_limits<double>::infinity();
  OnGpu([&](BesideCpu& beside) -> absl::Status {
    for (DType dtype : kWideFloats) {
      for (double squares : {4.0, 1.0, 0.25, 0.0, -1.0, inf, std::nan("")}) {
        for (int64_t n : kLengths) {
          for (int64_t offset : {0, 1}) {
            TESSERA_RETURN_IF_ERROR(beside.Check(
                {RandomFlat(rng_, dtype, n, offset), Number(squares)},
                [](Kernels& kernels, Stream& stream, Views views) {
                  return kernels.ClipToNorm(stream, views[0], views[1], 1.0);
                }));
          }
        }
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace tessera
