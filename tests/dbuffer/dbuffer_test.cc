#include "tessera/dbuffer/dbuffer.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/comm/local/run_ranks.h"
#include "tests/dbuffer/hsdp_buffers.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::FillTensors;
using ::tessera::testing::Floats;
using ::tessera::testing::GroupPtr;
using ::tessera::testing::HsdpGroup;
using ::tessera::testing::Parse;
using ::tessera::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- Memory -----------------------------------------------------------------

class DBufferTest : public ::testing::Test {
 protected:
  absl::StatusOr<DBuffer> Allocate(absl::string_view placements, int rank,
                                   DType dtype = DType::kF32,
                                   absl::string_view tag = "buffer") {
    return DBuffer::Allocate(group_, Parse(placements), dtype, rank, device_,
                             tag, *stream_);
  }

  const GroupPtr group_ = HsdpGroup();
  CpuDevice device_;
  const std::unique_ptr<Stream> stream_ = device_.NewStream("test").value();
};

TEST_F(DBufferTest, DeclareSaysWhatTheMemoryHoldsWithoutTouchingIt) {
  const int rank = 1;  // outer 0, inner 1: [128,256), then its first half
  ASSERT_OK_AND_ASSIGN(DBuffer buffer, Allocate("[P(sum), Flat]", rank));
  float value = 0;
  for (float& x : Floats(buffer.local())) x = value++;
  EXPECT_OK(buffer.Declare(Parse("[Flat, Flat]")));
  EXPECT_EQ(buffer.range(), (Interval{128, 192}));
  EXPECT_EQ(buffer.capacity(), (Interval{128, 256}));
  EXPECT_EQ(Floats(buffer.local())[63], 63);
  EXPECT_OK(buffer.Declare(Parse("[R, Flat]")));
  EXPECT_EQ(Floats(buffer.local())[127], 127);
  // What the memory does not cover, or the group rejects, changes nothing.
  EXPECT_THAT(buffer.Declare(Parse("[R, R]")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("[R, R]"), HasSubstr("[128,256)"))));
  EXPECT_THAT(buffer.Declare(Parse("[Flat, R]")),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(buffer.range(), (Interval{128, 256}));
}

TEST_F(DBufferTest, AllocatesZeros) {
  ASSERT_OK_AND_ASSIGN(const DBuffer buffer, Allocate("[P, Flat]", 1));
  EXPECT_EQ(buffer.dtype(), DType::kF32);
  EXPECT_EQ(buffer.rank(), 1);
  EXPECT_EQ(&buffer.group(), group_.get());
  EXPECT_THAT(buffer.placements(),
              ElementsAre(BufferPlacement::Partial(), BufferPlacement::Flat()));
  EXPECT_EQ(buffer.range(), (Interval{128, 256}));
  EXPECT_EQ(buffer.capacity(), buffer.range());
  EXPECT_EQ(buffer.local().num_elements(), 128);
  EXPECT_THAT(Floats(buffer.local()), Each(0.0f));
}

TEST_F(DBufferTest, AccountsItsBytesByTag) {
  EXPECT_EQ(group_->flat_layout().num_elements(), 256);
  {
    ASSERT_OK_AND_ASSIGN(DBuffer weight,
                         Allocate("[R, R]", 0, DType::kF32, "weight"));
    ASSERT_OK_AND_ASSIGN(DBuffer grad,
                         Allocate("[P, Flat]", 0, DType::kF64, "grad"));
    EXPECT_EQ(device_.memory().by_tag["weight"].current_bytes, 256 * 4);
    EXPECT_EQ(device_.memory().by_tag["grad"].current_bytes, 128 * 8);
    EXPECT_EQ(device_.memory().total.peak_bytes, 256 * 4 + 128 * 8);
    grad.Release(*stream_);
    EXPECT_EQ(device_.memory().by_tag["grad"].current_bytes, 0);
    EXPECT_EQ(device_.memory().total.current_bytes, 256 * 4);
    const DBuffer moved = std::move(weight);
    EXPECT_EQ(device_.memory().total.current_bytes, 256 * 4);
    EXPECT_EQ(moved.local().num_elements(), 256);
  }
  EXPECT_EQ(device_.memory().total.current_bytes, 0);
  EXPECT_EQ(device_.memory().total.allocations, 2);
}

TEST_F(DBufferTest, NeedsTheSameBytesOnEveryRank) {
  EXPECT_EQ(DBuffer::BytesFor(*group_, Parse("[R, R]"), DType::kF32), 1024);
  EXPECT_EQ(DBuffer::BytesFor(*group_, Parse("[P, Flat]"), DType::kF64), 1024);
  EXPECT_EQ(DBuffer::BytesFor(*group_, Parse("[Flat, Flat]"), DType::kF32),
            256);
}

TEST_F(DBufferTest, WrapsLentMemoryWithoutTouchingIt) {
  ASSERT_OK_AND_ASSIGN(Buffer memory, device_.Allocate(600, "lent"));
  std::memset(memory.data(), 0x11, 600);
  ASSERT_OK_AND_ASSIGN(DBuffer buffer,
                       DBuffer::Wrap(group_, Parse("[R, Flat]"), DType::kF32, 2,
                                     memory.data(), 600));
  EXPECT_EQ(buffer.local().data(), memory.data());
  EXPECT_THAT(Floats(buffer.local()), Each(std::bit_cast<float>(0x11111111)));
  buffer.Release(*stream_);
  EXPECT_EQ(device_.memory().by_tag["lent"].current_bytes, 600);
}

TEST_F(DBufferTest, RejectsMemoryThatDoesNotFit) {
  ASSERT_OK_AND_ASSIGN(Buffer memory, device_.Allocate(1024, "lent"));
  const auto wrap = [&](int offset, int64_t bytes) {
    return DBuffer::Wrap(group_, Parse("[R, Flat]"), DType::kF32, 0,
                         static_cast<char*>(memory.data()) + offset, bytes);
  };
  EXPECT_OK(wrap(16, 512).status());
  EXPECT_THAT(wrap(0, 511),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("512 bytes"), HasSubstr("found 511"))));
  EXPECT_THAT(wrap(8, 512), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("aligned to 16 bytes")));
}

TEST_F(DBufferTest, RejectsWhatTheGroupDoesNotAllow) {
  EXPECT_THAT(Allocate("[Flat, R]", 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("axis 'dp_outer' is Flat")));
  EXPECT_THAT(Allocate("[R]", 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("found [R]")));
  EXPECT_THAT(Allocate("[P(max), P(sum)]", 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("does not commute")));
  EXPECT_THAT(Allocate("[P(avg), R]", 0, DType::kI32),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'dp_outer' wants a floating dtype")));
  EXPECT_THAT(Allocate("[R, R]", 0, DType::kBF16),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("bf16 is narrower than f32")));
  EXPECT_THAT(Allocate("[R, R]", 4),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4")));
  EXPECT_EQ(device_.memory().total.allocations, 0);
}

TEST_F(DBufferTest, PassesOnThatMemoryIsShort) {
  CpuDevice device({.memory_limit_bytes = 1000});
  EXPECT_THAT(DBuffer::Allocate(group_, Parse("[R, R]"), DType::kF32, 0, device,
                                "buffer", *stream_),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

// --- Views ------------------------------------------------------------------

TEST_F(DBufferTest, PiecesLieWhereTheFlatLayoutSays) {
  ASSERT_OK_AND_ASSIGN(const DBuffer whole, Allocate("[R, P]", 3));
  float* const base = whole.local().as<float>();
  EXPECT_EQ(whole.TensorPiece(0).as<float>(), base);
  EXPECT_EQ(whole.TensorPiece(1).as<float>(), base + 92);
  EXPECT_EQ(whole.TensorPiece(2).as<float>(), base + 96);
  EXPECT_EQ(whole.TensorPiece(2).num_elements(), 61);
  EXPECT_EQ(whole.WholeTensor(0).ToString(), "f32[13,7]");
  EXPECT_EQ(whole.WholeTensor(1).ToString(), "f32[]");
  EXPECT_EQ(whole.WholeTensor(2).as<float>(), base + 96);

  // dp_inner's second half: [128, 256), of v's [96, 157).
  ASSERT_OK_AND_ASSIGN(const DBuffer half, Allocate("[P, Flat]", 3));
  EXPECT_EQ(half.TensorPiece(0).num_elements(), 0);
  EXPECT_EQ(half.TensorPiece(1).num_elements(), 0);
  EXPECT_EQ(half.TensorPiece(2).num_elements(), 29);
  EXPECT_EQ(half.TensorPiece(2).as<float>(), half.local().as<float>());
}

TEST_F(DBufferTest, TensorsAreThePiecesOfTheirLayouts) {
  for (absl::string_view placements :
       {"[R, R]", "[P, R]", "[R, Flat]", "[P, Flat]", "[Flat, Flat]"}) {
    SCOPED_TRACE(placements);
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_OK_AND_ASSIGN(const DBuffer buffer, Allocate(placements, rank));
      for (int i = 0; i < group_->num_tensors(); ++i) {
        ASSERT_OK_AND_ASSIGN(const Layout layout, buffer.TensorLayout(i));
        ASSERT_OK_AND_ASSIGN(const ShardedTensor tensor,
                             buffer.Tensor(i).Sharded());
        EXPECT_EQ(tensor.layout(), layout);
        EXPECT_EQ(tensor.local().meta(), layout.LocalMeta(rank));
        EXPECT_EQ(tensor.local().data(), buffer.TensorPiece(i).data());
        EXPECT_EQ(tensor.local().num_elements(),
                  buffer.TensorPiece(i).num_elements());
        EXPECT_FALSE(tensor.owned());
      }
    }
  }
}

TEST_F(DBufferTest, TensorsFollowTheirBuffer) {
  ASSERT_OK_AND_ASSIGN(DBuffer first, Allocate("[R, R]", 3));
  const DBufferTensor v = first.Tensor(2);
  EXPECT_EQ(v.name(), "v");
  EXPECT_EQ(v.TensorLayout()->PlacementsToString(), "[R, R]");
  EXPECT_EQ(*v.Held(), (Interval{0, 61}));
  EXPECT_EQ(v.Local()->data(), first.TensorPiece(2).data());

  ASSERT_OK(first.Declare(Parse("[R, Flat]")));
  EXPECT_EQ(v.TensorLayout()->PlacementsToString(), "[R, Ragged(-96+128)[0]]");
  EXPECT_EQ(*v.Held(), (Interval{32, 61}));
  EXPECT_EQ(v.Local()->num_elements(), 29);

  // Wherever the buffer goes.
  DBuffer second = std::move(first);
  EXPECT_EQ(v.Local()->data(), second.TensorPiece(2).data());

  const auto is_released =
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("tensor 'v'"), HasSubstr("rank 3"),
                     HasSubstr("is released")));
  second.Release(*stream_);
  EXPECT_THAT(v.Local(), is_released);
  EXPECT_THAT(v.Sharded(), is_released);
  EXPECT_EQ(v.TensorLayout()->PlacementsToString(), "[R, Ragged(-96+128)[0]]");
  EXPECT_EQ(*v.Held(), (Interval{32, 61}));

  ASSERT_OK(second.Restore(device_, "again", *stream_));
  EXPECT_EQ(v.Local()->data(), second.TensorPiece(2).data());
  EXPECT_EQ(v.Sharded()->local().num_elements(), 29);

  { const DBuffer gone = std::move(second); }
  const auto is_gone = StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("buffer of tensor 'v' is gone"));
  EXPECT_THAT(v.Local(), is_gone);
  EXPECT_THAT(v.Held(), is_gone);
  EXPECT_THAT(v.TensorLayout(), is_gone);
  EXPECT_EQ(v.name(), "v");
}

// [13,7] at element granularity over two halves of 128: all of w is in the
// first one. At granularity row the same, but v's 4 rows of 16 are cut in two.
TEST_F(DBufferTest, TensorsHaveRowsWhereTheyAreWhole) {
  const DeviceMesh mesh = DeviceMesh::Parse("dp=2").value();
  const auto tensor = [&](absl::string_view name, absl::string_view layout,
                          Granularity granularity) {
    return BufferGroup::Tensor{
        std::string(name), Layout::Parse(layout, mesh).value(), granularity};
  };
  ASSERT_OK_AND_ASSIGN(
      const GroupPtr group,
      BufferGroup::Create(
          mesh,
          {tensor("rows", "f32[6,32] [R]", Granularity::Row()),
           tensor("cut", "f32[3,31] [R]", Granularity::Element()),
           tensor("scalar", "f32[] [R]", Granularity::Element())},
          {.axes = {0}, .num_flat_axes = 1}));
  ASSERT_EQ(group->flat_layout().per_rank_elements(), 160);
  const auto shape_of = [&](int rank, int i, absl::string_view placements) {
    const DBuffer buffer =
        DBuffer::Allocate(group, Parse(placements), DType::kF32, rank, device_,
                          "buffer", *stream_)
            .value();
    return buffer.Tensor(i).Local()->ToString();
  };
  EXPECT_EQ(shape_of(0, 0, "[R]"), "f32[6,32]");
  EXPECT_EQ(shape_of(0, 1, "[R]"), "f32[3,31]");
  EXPECT_EQ(shape_of(0, 2, "[R]"), "f32[]");
  EXPECT_EQ(shape_of(0, 0, "[Flat]"), "f32[5,32]");
  EXPECT_EQ(shape_of(1, 0, "[Flat]"), "f32[1,32]");
  EXPECT_EQ(shape_of(0, 1, "[Flat]"), "f32[0,31]");
  EXPECT_EQ(shape_of(1, 1, "[Flat]"), "f32[3,31]");
  EXPECT_EQ(shape_of(0, 2, "[Flat]"), "f32[0]");
  EXPECT_EQ(shape_of(1, 2, "[Flat]"), "f32[]");

  // w's rows of 7 are cut at element 64.
  ASSERT_OK_AND_ASSIGN(const DBuffer quarter, Allocate("[Flat, Flat]", 0));
  EXPECT_EQ(quarter.Tensor(0).Local()->ToString(), "f32[64]");
}

TEST_F(DBufferTest, ReleasesAndRestoresItsMemory) {
  ASSERT_OK_AND_ASSIGN(DBuffer buffer, Allocate("[R, R]", 1, DType::kF32, "a"));
  const auto bytes = [&](absl::string_view tag) {
    return device_.memory().by_tag[std::string(tag)].current_bytes;
  };
  EXPECT_THAT(buffer.Restore(device_, "b", *stream_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("want it released")));
  ASSERT_OK(buffer.Declare(Parse("[R, Flat]")));
  for (float& x : Floats(buffer.local())) x = 7;
  buffer.Release(*stream_);
  buffer.Release(*stream_);
  EXPECT_FALSE(buffer.has_memory());
  EXPECT_EQ(bytes("a"), 0);
  EXPECT_EQ(buffer.capacity(), (Interval{0, 256}));
  EXPECT_EQ(buffer.range(), (Interval{128, 256}));
  EXPECT_EQ(buffer.TensorPiece(2).num_elements(), 29);
  EXPECT_EQ(buffer.TensorPiece(2).data(), nullptr);
  EXPECT_THAT(
      buffer.FillZero(*stream_),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("released")));

  // All of the capacity, in zeros.
  ASSERT_OK(buffer.Restore(device_, "b", *stream_));
  EXPECT_EQ(bytes("b"), 256 * 4);
  EXPECT_THAT(Floats(buffer.local()), Each(0.0f));
  ASSERT_OK(buffer.Declare(Parse("[R, R]")));
  EXPECT_THAT(Floats(buffer.local()), Each(0.0f));

  buffer.Release(*stream_);
  alignas(16) float lent[256];
  std::fill(std::begin(lent), std::end(lent), 3.0f);
  EXPECT_THAT(
      buffer.Restore(lent, 100),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("want 1024 bytes"), HasSubstr("found 100"))));
  EXPECT_THAT(
      buffer.Restore(nullptr, 1024),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  ASSERT_OK(buffer.Restore(lent, sizeof(lent)));
  EXPECT_THAT(Floats(buffer.local()), Each(3.0f));
  EXPECT_EQ(bytes("b"), 0);
}

TEST_F(DBufferTest, CastsBetweenDTypesOfOneFlatLayout) {
  const GroupPtr group = HsdpGroup(
      {.axes = {0, 1}, .num_flat_axes = 2, .narrowest = DType::kBF16});
  const auto allocate = [&](absl::string_view placements, DType dtype) {
    return DBuffer::Allocate(group, Parse(placements), dtype, 3, device_,
                             "buffer", *stream_)
        .value();
  };
  const DBuffer main = allocate("[R, R]", DType::kF32);
  FillTensors(main, 1.0f + 1.0f / 512);
  for (absl::string_view placements : {"[R, R]", "[R, Flat]", "[Flat, Flat]"}) {
    DBuffer model = allocate(placements, DType::kBF16);
    ASSERT_OK(main.CastTo(model, *stream_));
    const int64_t shift = model.range().begin - main.range().begin;
    for (int64_t e = 0; e < model.range().size(); ++e) {
      EXPECT_EQ(static_cast<float>(model.local().as<BFloat16>()[e]),
                static_cast<float>(BFloat16(Floats(main.local())[e + shift])));
    }
  }
  DBuffer partial = allocate("[R, P]", DType::kBF16);
  EXPECT_THAT(main.CastTo(partial, *stream_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("R to P(sum) along axis 'dp_inner'")));
  EXPECT_THAT(allocate("[R, Flat]", DType::kBF16)
                  .CastTo(const_cast<DBuffer&>(main), *stream_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Flat to R along axis 'dp_inner'")));
}

// A norm may go over the whole flat memory: padding adds nothing, whatever the
// buffer went through.
TEST_F(DBufferTest, PaddingNeverCounts) {
  EXPECT_OK(RunLocalRanks(4, [&](LocalRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        DBuffer grads,
        DBuffer::Allocate(group_, Parse("[P, P]"), DType::kF32, rank.rank,
                          rank.device, "grads", rank.stream));
    for (int step = 0; step < 3; ++step) {
      FillTensors(grads, static_cast<float>(1 + rank.rank));
      for (absl::string_view next :
           {"[P, Flat]", "[Flat, Flat]", "[P, Flat]", "[R, R]", "[P, P]"}) {
        TESSERA_RETURN_IF_ERROR(
            grads.ConvertTo(Parse(next), rank.comms, rank.stream));
        double of_buffer = 0;
        for (float x : Floats(grads.local())) of_buffer += double{x} * x;
        double of_tensors = 0;
        for (int i = 0; i < group_->num_tensors(); ++i) {
          for (float x : Floats(grads.TensorPiece(i))) {
            of_tensors += double{x} * x;
          }
        }
        EXPECT_EQ(of_buffer, of_tensors) << next << " in step " << step;
      }
    }
    return absl::OkStatus();
  }));
}

TEST_F(DBufferTest, FillPaddingLeavesTensorsAlone) {
  for (absl::string_view placements : {"[R, R]", "[R, Flat]", "[Flat, Flat]"}) {
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_OK_AND_ASSIGN(DBuffer buffer, Allocate(placements, rank));
      for (float& x : Floats(buffer.local())) x = 7;
      ASSERT_OK(buffer.FillPadding(*stream_));
      int64_t elements = 0;
      for (int i = 0; i < group_->num_tensors(); ++i) {
        EXPECT_THAT(Floats(buffer.TensorPiece(i)), Each(7.0f));
        elements += buffer.TensorPiece(i).num_elements();
      }
      EXPECT_EQ(std::count(Floats(buffer.local()).begin(),
                           Floats(buffer.local()).end(), 7.0f),
                elements);
      ASSERT_OK(buffer.FillZero(*stream_));
      EXPECT_THAT(Floats(buffer.local()), Each(0.0f));
    }
  }
}

// With 3 rows over tp=2 the second rank's piece is shorter, and followed by
// padding; the offsets are the first rank's.
TEST_F(DBufferTest, ShorterPiecesAreFollowedByPadding) {
  const DeviceMesh mesh = DeviceMesh::Parse("dp=2,tp=2").value();
  ASSERT_OK_AND_ASSIGN(
      const GroupPtr group,
      BufferGroup::Create(
          mesh,
          {{"a", Layout::Parse("f32[3,8] [R, S(0)]", mesh).value()},
           {"b", Layout::Parse("f32[8] [R, R]", mesh).value()}},
          {.axes = {0}, .num_flat_axes = 1}));
  ASSERT_OK_AND_ASSIGN(DBuffer buffer,
                       DBuffer::Allocate(group, Parse("[R]"), DType::kF32, 1,
                                         device_, "buffer", *stream_));
  EXPECT_EQ(buffer.TensorPiece(0).num_elements(), 8);
  EXPECT_EQ(buffer.WholeTensor(0).ToString(), "f32[1,8]");
  EXPECT_EQ(buffer.TensorPiece(1).as<float>(), buffer.local().as<float>() + 16);
  for (float& x : Floats(buffer.local())) x = 7;
  ASSERT_OK(buffer.FillPadding(*stream_));
  for (int64_t e = 0; e < 64; ++e) {
    const bool is_tensor = e < 8 || (e >= 16 && e < 24);
    EXPECT_EQ(Floats(buffer.local())[e], is_tensor ? 7 : 0) << e;
  }
}

}  // namespace
}  // namespace tessera
