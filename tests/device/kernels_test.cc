#include "tessera/device/kernels.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tests/device/recording_stream.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::RecordingStream;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class KernelsTest : public ::testing::Test {
 protected:
  // A view of memory that no rejected call touches.
  TensorView View(absl::string_view meta) {
    return TensorView(memory_, TensorMeta::Parse(meta).value());
  }
  TensorView Strided(absl::string_view meta,
                     absl::Span<const int64_t> strides) {
    return TensorView::Strided(memory_, TensorMeta::Parse(meta).value(),
                               strides)
        .value();
  }

  alignas(128) char memory_[1024] = {};
  CpuDevice device_;
  std::unique_ptr<Stream> stream_ = device_.NewStream("s").value();
  Kernels& kernels_ = device_.kernels();
};

TEST_F(KernelsTest, FillRejectsWhatAnIntegerCannotHold) {
  const double inf = std::numeric_limits<double>::infinity();
  for (double value : {0x1p31, -0x1p31 - 1, std::nan(""), inf}) {
    EXPECT_THAT(kernels_.Fill(*stream_, View("i32[4]"), value),
                StatusIs(kInvalid, AllOf(HasSubstr("kernels: fill value"),
                                         HasSubstr("i32[4]"))))
        << value;
    EXPECT_OK(kernels_.Fill(*stream_, View("f16[4]"), value));
  }
  EXPECT_OK(kernels_.Fill(*stream_, View("i32[4]"), 0x1p31 - 0.5));
  EXPECT_EQ(View("i32[4]").as<int32_t>()[3], INT32_MAX);
  EXPECT_OK(kernels_.Fill(*stream_, View("i32[4]"), -0x1p31));
  EXPECT_THAT(kernels_.Fill(*stream_, View("i64[]"), 0x1p63),
              StatusIs(kInvalid));
  EXPECT_OK(kernels_.Fill(*stream_, View("i64[]"), -0x1p63));
  EXPECT_EQ(*View("i64[]").as<int64_t>(), INT64_MIN);
}

TEST_F(KernelsTest, CopyRejectsOtherShapesAndDTypes) {
  EXPECT_THAT(kernels_.Copy(*stream_, View("f32[2,3]"), View("f32[3,2]")),
              StatusIs(kInvalid,
                       "kernels: copy wants one dtype and shape, found dst "
                       "f32[2,3] and src f32[3,2]"));
  EXPECT_THAT(kernels_.Copy(*stream_, View("i32[6]"), View("f32[6]")),
              StatusIs(kInvalid));
}

TEST_F(KernelsTest, CastAllowsFloatsAndWideningIntegers) {
  for (DType dst : kAllDTypes) {
    for (DType src : kAllDTypes) {
      const bool legal = IsFloating(dst) || dst == src ||
                         (dst == DType::kI64 && src == DType::kI32);
      const absl::Status status =
          kernels_.Cast(*stream_, TensorView::Flat(memory_, dst, 8),
                        TensorView::Flat(memory_ + 512, src, 8));
      EXPECT_EQ(status.ok(), legal) << dst << " from " << src;
      if (legal) continue;
      EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("kernels: cast wants")));
    }
  }
}

TEST_F(KernelsTest, ScaleRejectsIntegers) {
  EXPECT_THAT(kernels_.Scale(*stream_, View("i32[4]"), 2),
              StatusIs(kInvalid, "kernels: scale wants floats, found i32[4]"));
}

TEST_F(KernelsTest, AddRejectsOtherDTypes) {
  EXPECT_THAT(kernels_.Add(*stream_, View("f32[4]"), View("bf16[4]")),
              StatusIs(kInvalid,
                       "kernels: add wants one dtype, found dst f32[4] and src "
                       "bf16[4]"));
}

TEST_F(KernelsTest, AccumulateScaledTakesFloatsIntoF32OrF64) {
  for (DType dst : kAllDTypes) {
    for (DType src : kAllDTypes) {
      const bool legal =
          (dst == DType::kF32 || dst == DType::kF64) && IsFloating(src);
      const absl::Status status = kernels_.AccumulateScaled(
          *stream_, TensorView::Flat(memory_, dst, 8),
          TensorView::Flat(memory_ + 512, src, 8), 0.5);
      EXPECT_EQ(status.ok(), legal) << dst << " += " << src;
      if (legal) continue;
      EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("accumulate_scaled")));
    }
  }
}

TEST_F(KernelsTest, OptimizersTakeF32AndF64) {
  for (DType weight_dtype : kAllDTypes) {
    for (DType gradient_dtype : kAllDTypes) {
      const TensorView weight = TensorView::Flat(memory_, weight_dtype, 8);
      const TensorView gradient =
          TensorView::Flat(memory_ + 256, gradient_dtype, 8);
      const TensorView kept = TensorView::Flat(memory_ + 512, weight_dtype, 8);
      const auto is_wide = [](DType dtype) {
        return dtype == DType::kF32 || dtype == DType::kF64;
      };
      const bool legal = is_wide(weight_dtype) && is_wide(gradient_dtype);
      for (const absl::Status& status :
           {kernels_.Sgd(*stream_, weight, gradient, kept, {.momentum = 0.5}),
            kernels_.AdamW(*stream_, weight, gradient, kept, kept, {})}) {
        EXPECT_EQ(status.ok(), legal) << weight_dtype << gradient_dtype;
        if (legal) continue;
        EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("an f32 or f64 weight "
                                                         "and gradient")));
      }
    }
  }
}

TEST_F(KernelsTest, OptimizersRejectWhatDoesNotFitTheWeight) {
  const TensorView four = View("f32[4]");
  const TensorView five = View("f32[5]");
  const TensorView wide = View("f64[4]");
  const SgdUpdate momentum = {.momentum = 0.9};
  const auto elements = StatusIs(kInvalid, HasSubstr("one number of elements"));
  const auto dtype = StatusIs(
      kInvalid, HasSubstr("one dtype, found dst f32[4] and src f64[4]"));
  EXPECT_THAT(kernels_.Sgd(*stream_, four, five, {}, {}), elements);
  EXPECT_THAT(kernels_.Sgd(*stream_, four, four, five, momentum), elements);
  EXPECT_THAT(kernels_.Sgd(*stream_, four, four, wide, momentum), dtype);
  EXPECT_OK(kernels_.Sgd(*stream_, four, wide, five, {}));
  EXPECT_THAT(kernels_.AdamW(*stream_, four, five, four, four, {}), elements);
  EXPECT_THAT(kernels_.AdamW(*stream_, four, four, five, four, {}), elements);
  EXPECT_THAT(kernels_.AdamW(*stream_, four, four, four, five, {}), elements);
  EXPECT_THAT(kernels_.AdamW(*stream_, four, four, wide, four, {}), dtype);
  EXPECT_THAT(kernels_.AdamW(*stream_, four, four, four, wide, {}), dtype);
  EXPECT_THAT(
      kernels_.AdamW(*stream_, four, four, four, four, {.step = 0}),
      StatusIs(kInvalid, "kernels: adamw wants a step of at least 1, found 0"));
}

TEST_F(KernelsTest, NumbersAreOneF64AboutF32OrF64) {
  const TensorView number = View("f64[1]");
  for (DType dtype : kAllDTypes) {
    const bool legal = dtype == DType::kF32 || dtype == DType::kF64;
    const TensorView x = TensorView::Flat(memory_ + 512, dtype, 8);
    for (const absl::Status& status :
         {kernels_.AddSquares(*stream_, number, x),
          kernels_.CountNonFinite(*stream_, number, x),
          kernels_.ClipToNorm(*stream_, x, number, 1)}) {
      EXPECT_EQ(status.ok(), legal) << dtype;
      if (legal) continue;
      EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("wants one f64 dst and "
                                                       "an f32 or f64 src")));
    }
  }
  for (const char* meta : {"f64[2]", "f32[1]", "f64[0]"}) {
    EXPECT_THAT(kernels_.AddSquares(*stream_, View(meta), View("f32[4]")),
                StatusIs(kInvalid, HasSubstr("one f64 dst")));
  }
  EXPECT_THAT(
      kernels_.CountNonFinite(*stream_, number, Strided("f32[2,3]", {8, 1})),
      StatusIs(kInvalid, HasSubstr("wants contiguous views")));
}

TEST_F(KernelsTest, ClipRejectsNormsThatAreNone) {
  for (double max_norm : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(
        kernels_.ClipToNorm(*stream_, View("f32[4]"), View("f64[1]"), max_norm),
        StatusIs(kInvalid,
                 absl::StrCat("kernels: clip_to_norm wants a finite norm of at "
                              "least 0, found ",
                              max_norm)));
  }
}

TEST_F(KernelsTest, FlatKernelsRejectOtherNumbersOfElements) {
  const TensorView four = View("f32[4]");
  const TensorView five = View("f32[5]");
  const auto wants = StatusIs(
      kInvalid, HasSubstr("one number of elements, found dst f32[4] and src "
                          "f32[5]"));
  EXPECT_THAT(kernels_.Cast(*stream_, four, five), wants);
  EXPECT_THAT(kernels_.Add(*stream_, four, five), wants);
  EXPECT_THAT(kernels_.AccumulateScaled(*stream_, four, five, 1), wants);
}

TEST_F(KernelsTest, FlatKernelsTakeOtherShapesOfAsManyElements) {
  const TensorView dst = View("f32[2,3]");
  const TensorView src =
      TensorView(memory_ + 512, TensorMeta::Parse("f32[6]").value());
  std::iota(src.as<float>(), src.as<float>() + 6, 1.0f);
  EXPECT_OK(kernels_.Cast(*stream_, dst, src));
  EXPECT_OK(kernels_.Add(*stream_, dst, src));
  EXPECT_OK(kernels_.AccumulateScaled(*stream_, dst, src, 0.5));
  EXPECT_THAT(std::vector(dst.as<float>(), dst.as<float>() + 6),
              ElementsAre(2.5f, 5, 7.5f, 10, 12.5f, 15));
}

TEST_F(KernelsTest, FlatKernelsRejectStrides) {
  const TensorView dense = View("f32[2,3]");
  const TensorView gaps = Strided("f32[2,3]", {8, 1});
  const auto wants =
      StatusIs(kInvalid, HasSubstr("wants contiguous views, found f32[2,3] "
                                   "strides (8,1)"));
  EXPECT_THAT(kernels_.Cast(*stream_, dense, gaps), wants);
  EXPECT_THAT(kernels_.Cast(*stream_, gaps, dense), wants);
  EXPECT_THAT(kernels_.Add(*stream_, gaps, dense), wants);
  EXPECT_THAT(kernels_.AccumulateScaled(*stream_, dense, gaps, 1), wants);
  EXPECT_THAT(kernels_.Sgd(*stream_, gaps, dense, {}, {}), wants);
  EXPECT_THAT(kernels_.AdamW(*stream_, dense, dense, gaps, dense, {}), wants);
  EXPECT_THAT(kernels_.CopyFromHost(*stream_, gaps, memory_ + 512), wants);
  EXPECT_THAT(kernels_.CopyToHost(*stream_, memory_ + 512, gaps), wants);
  EXPECT_OK(kernels_.Fill(*stream_, gaps, 1));
  EXPECT_OK(kernels_.Copy(*stream_, gaps, gaps));
}

TEST_F(KernelsTest, ScalesWhatIsStridedAndNothingBetween) {
  const TensorView gaps = Strided("f32[2,3]", {8, 2});
  float* const memory = gaps.as<float>();
  for (int i = 0; i < 16; ++i) memory[i] = static_cast<float>(i);
  EXPECT_OK(kernels_.Scale(*stream_, gaps, 10));
  EXPECT_THAT(std::vector(memory, memory + 16),
              ElementsAre(0, 1, 20, 3, 40, 5, 6, 7,  //
                          80, 9, 100, 11, 120, 13, 14, 15));
}

TEST_F(KernelsTest, CopiesFromAndToTheHost) {
  const std::vector<float> in = {1, 2, 3, 4, 5, 6};
  std::vector<float> out(6);
  const TensorView x = View("f32[2,3]");
  EXPECT_OK(kernels_.CopyFromHost(*stream_, x, in.data()));
  EXPECT_OK(kernels_.CopyToHost(*stream_, out.data(), x));
  EXPECT_EQ(out, in);
  const TensorView none(nullptr, TensorMeta::Parse("f32[0]").value());
  EXPECT_OK(kernels_.CopyFromHost(*stream_, none, nullptr));
  EXPECT_OK(kernels_.CopyToHost(*stream_, nullptr, none));
}

TEST_F(KernelsTest, ReturnsTheStreamsError) {
  stream_->Launch({.name = "fail"}, [] { return absl::DataLossError("lost"); })
      .IgnoreError();
  const auto lost = StatusIs(absl::StatusCode::kDataLoss, "lost");
  const TensorView x = View("f32[4]");
  EXPECT_THAT(kernels_.Fill(*stream_, x, 1), lost);
  EXPECT_THAT(kernels_.Copy(*stream_, x, x), lost);
  EXPECT_THAT(kernels_.Cast(*stream_, x, x), lost);
  EXPECT_THAT(kernels_.Scale(*stream_, x, 1), lost);
  EXPECT_THAT(kernels_.Add(*stream_, x, x), lost);
  EXPECT_THAT(kernels_.AccumulateScaled(*stream_, x, x, 1), lost);
  EXPECT_THAT(kernels_.Sgd(*stream_, x, x, x, {}), lost);
  EXPECT_THAT(kernels_.AdamW(*stream_, x, x, x, x, {}), lost);
  EXPECT_THAT(kernels_.AddSquares(*stream_, View("f64[1]"), x), lost);
  EXPECT_THAT(kernels_.CountNonFinite(*stream_, View("f64[1]"), x), lost);
  EXPECT_THAT(kernels_.ClipToNorm(*stream_, x, View("f64[1]"), 1), lost);
  EXPECT_THAT(kernels_.CopyFromHost(*stream_, x, memory_), lost);
  EXPECT_THAT(kernels_.CopyToHost(*stream_, memory_, x), lost);
  EXPECT_EQ(x.as<float>()[0], 0);
}

// What race detectors and simulators get to see.
TEST_F(KernelsTest, DescribesWhatItReadsAndWrites) {
  const TensorView x = View("f32[4]");
  const TensorView y(memory_ + 512, TensorMeta::Parse("f32[4]").value());
  const TensorView gaps = Strided("f32[2,3]", {8, 1});
  const float host[4] = {1, 2, 3, 4};
  float back[4] = {};
  RecordingStream stream(device_);
  EXPECT_OK(kernels_.CopyFromHost(stream, y, host));
  EXPECT_OK(kernels_.Fill(stream, gaps, 1));
  EXPECT_OK(kernels_.Copy(stream, x, y));
  EXPECT_OK(kernels_.Cast(stream, x, y));
  EXPECT_OK(kernels_.Scale(stream, x, 2));
  EXPECT_OK(kernels_.Add(stream, x, y));
  EXPECT_OK(kernels_.AccumulateScaled(stream, x, y, 2));
  EXPECT_OK(kernels_.CopyToHost(stream, back, x));

  std::vector<std::string> seen;
  const auto list = [&](const std::vector<MemoryRange>& ranges) {
    std::string text;
    for (const MemoryRange& range : ranges) {
      absl::StrAppend(&text, range.begin == x.data() ? "x" : "y", range.bytes);
    }
    return text;
  };
  for (auto& launch : stream.launches) {
    seen.push_back(absl::StrCat(launch.name, " reads ", list(launch.reads),
                                " writes ", list(launch.writes), " moves ",
                                launch.bytes, " flops ", launch.flops));
    EXPECT_OK(launch.body());
  }
  EXPECT_THAT(seen,
              ElementsAre("copy_from_host reads  writes y16 moves 16 flops 0",
                          "fill reads  writes x44 moves 24 flops 0",
                          "copy reads y16 writes x16 moves 32 flops 0",
                          "cast reads y16 writes x16 moves 32 flops 0",
                          "scale reads x16 writes x16 moves 32 flops 4",
                          "add reads x16y16 writes x16 moves 48 flops 4",
                          "accumulate_scaled reads x16y16 writes x16 moves 48 "
                          "flops 8",
                          "copy_to_host reads x16 writes  moves 16 flops 0"));
  // ((y * 2) + y) + y * 2
  EXPECT_THAT(back, ElementsAre(5, 10, 15, 20));
}

TEST_F(KernelsTest, DescribesWhatNumbersAreMadeOf) {
  const TensorView number = View("f64[1]");
  const TensorView x(memory_ + 512, TensorMeta::Parse("f32[4]").value());
  RecordingStream stream(device_);
  EXPECT_OK(kernels_.AddSquares(stream, number, x));
  EXPECT_OK(kernels_.CountNonFinite(stream, number, x));
  ASSERT_EQ(stream.launches.size(), 2);
  for (const auto& launch : stream.launches) {
    ASSERT_EQ(launch.reads.size(), 2);
    EXPECT_EQ(launch.reads[0].begin, number.data());
    EXPECT_EQ(launch.reads[1].begin, x.data());
    ASSERT_EQ(launch.writes.size(), 1);
    EXPECT_EQ(launch.writes[0].begin, number.data());
    EXPECT_EQ(launch.bytes, 32);
  }
  EXPECT_EQ(stream.launches[0].flops, 8);
  EXPECT_EQ(stream.launches[1].flops, 4);
}

TEST_F(KernelsTest, DescribesWhatIsClippedByANumber) {
  const TensorView number = View("f64[1]");
  const TensorView x(memory_ + 512, TensorMeta::Parse("f32[4]").value());
  RecordingStream stream(device_);
  EXPECT_OK(kernels_.ClipToNorm(stream, x, number, 1));
  ASSERT_EQ(stream.launches.size(), 1);
  const auto& launch = stream.launches[0];
  ASSERT_EQ(launch.reads.size(), 2);
  EXPECT_EQ(launch.reads[0].begin, x.data());
  EXPECT_EQ(launch.reads[1].begin, number.data());
  ASSERT_EQ(launch.writes.size(), 1);
  EXPECT_EQ(launch.writes[0].begin, x.data());
  EXPECT_EQ(launch.bytes, 40);
  EXPECT_EQ(launch.flops, 4);
}

TEST_F(KernelsTest, DescribesWhatOptimizersReadAndWrite) {
  const auto view = [&](int place) {
    return TensorView::Flat(memory_ + 128 * place, DType::kF32, 4);
  };
  RecordingStream stream(device_);
  const auto sgd = [&](const SgdUpdate& update) {
    EXPECT_OK(kernels_.Sgd(stream, view(0), view(1), view(2), update));
  };
  sgd({});
  sgd({.weight_decay = 0.1});
  sgd({.momentum = 0.9, .first = true});
  sgd({.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  EXPECT_OK(kernels_.AdamW(stream, view(0), view(1), view(2), view(3), {}));

  std::vector<std::string> seen;
  const auto list = [&](const std::vector<MemoryRange>& ranges) {
    std::string text;
    for (const MemoryRange& range : ranges) {
      EXPECT_EQ(range.bytes, 16);
      text.push_back(
          "wgmv"[(static_cast<const char*>(range.begin) - memory_) / 128]);
    }
    return text;
  };
  for (auto& launch : stream.launches) {
    seen.push_back(absl::StrCat(launch.name, " ", list(launch.reads), " to ",
                                list(launch.writes), " moves ", launch.bytes,
                                " flops ", launch.flops));
  }
  EXPECT_THAT(seen, ElementsAre("sgd wg to w moves 48 flops 8",
                                "sgd wg to w moves 48 flops 16",
                                "sgd wg to wm moves 64 flops 8",
                                "sgd wgm to wm moves 80 flops 36",
                                "adamw wgmv to wmv moves 112 flops 56"));
}

}  // namespace
}  // namespace tessera
