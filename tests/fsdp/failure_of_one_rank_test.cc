// What fails on one rank alone ends the waits of the others, with its reason.

#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/base/status_macros.h"
#include "tessera/comm/local/run_ranks.h"
#include "tessera/fsdp/context.h"
#include "tessera/fsdp/gradient_norm.h"
#include "tests/cpu_streams.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMemory = 1 << 20;  // of a rank
constexpr int64_t kElements = 4096;   // of the weight

// A context with one weight.
struct Model {
  std::unique_ptr<Context> context;
  Unit* unit;

  static absl::StatusOr<Model> Create(LocalRank& rank,
                                      MissingGradients missing) {
    FsdpOptions options;
    TESSERA_ASSIGN_OR_RETURN(options.mesh, DeviceMesh::Parse("dp=2"));
    TESSERA_ASSIGN_OR_RETURN(options.placements, PlacementsFor("fsdp", 1));
    options.missing_gradients = missing;
    options.logger = Logger(nullptr, absl::LogSeverity::kError);
    Model model;
    TESSERA_ASSIGN_OR_RETURN(
        model.context,
        Context::Create(options, rank.comms.world(), rank.stream));
    UnitBuilder builder = model.context->NewUnit("unit");
    builder.Add("weight", *TensorMeta::Create(DType::kF32, {kElements}));
    TESSERA_ASSIGN_OR_RETURN(model.unit, builder.Build());
    TESSERA_RETURN_IF_ERROR(model.context->Prepare());
    return model;
  }

  // All elements of the gradient become this, unless it is missing.
  absl::Status Differentiate(Stream& stream, double value, bool is_missing) {
    unit->BeforeForward();
    unit->AfterForward();
    unit->BeforeBackward();
    if (!is_missing) {
      TESSERA_ASSIGN_OR_RETURN(const TensorView gradient,
                               unit->grad(0, GradientWrite::kOverwrite));
      TESSERA_RETURN_IF_ERROR(
          stream.device().kernels().Fill(stream, gradient, value));
    }
    unit->AfterBackward();
    return context->Synchronize();
  }
};

// All memory that is left, but for so many bytes.
absl::StatusOr<Buffer> TakeMemory(Device& device, int64_t left) {
  return device.Allocate(kMemory - device.memory().total.current_bytes - left,
                         "taken");
}

class FailureOfOneRank : public ::testing::TestWithParam<CpuStreams> {
 protected:
  // Expects the code on rank `failing` and Aborted on the other, with these
  // words on both. Both have their models before either begins, and keep them
  // until both have ended: the other one can only hear of it by an abort.
  static void Expect(int failing, absl::StatusCode code,
                     const std::string& words, MissingGradients missing,
                     absl::FunctionRef<absl::Status(LocalRank&, Model&)> body) {
    LocalRunOptions options;
    options.device.streams = GetParam();
    options.device.memory_limit_bytes = kMemory;
    options.world.timeout = std::chrono::seconds(100);
    std::barrier all(2);
    // The streams that fail are the ranks' own, and so is what this returns.
    (void)RunLocalRanks(
        2,
        [&](LocalRank& rank) -> absl::Status {
          absl::StatusOr<Model> model = Model::Create(rank, missing);
          EXPECT_OK(model);
          all.arrive_and_wait();
          EXPECT_THAT(
              model.ok() ? body(rank, *model) : model.status(),
              StatusIs(rank.rank == failing ? code : absl::StatusCode::kAborted,
                       HasSubstr(words)));
          all.arrive_and_wait();
          return absl::OkStatus();
        },
        options);
  }
};

INSTANTIATE_TEST_SUITE_P(Streams, FailureOfOneRank, testing::BothStreams(),
                         testing::StreamsName);

TEST_P(FailureOfOneRank, MissingGradient) {
  Expect(1, absl::StatusCode::kFailedPrecondition,
         "parameter 'weight' has no gradient", MissingGradients::kError,
         [](LocalRank& rank, Model& model) {
           return model.Differentiate(rank.stream, 1.0,
                                      /*is_missing=*/rank.rank == 1);
         });
}

TEST_P(FailureOfOneRank, NoMemoryToScatterAWeight) {
  Expect(0, absl::StatusCode::kResourceExhausted, "device: no memory for",
         MissingGradients::kZero,
         [](LocalRank& rank, Model& model) -> absl::Status {
           Buffer taken;
           if (rank.rank == 0) {
             TESSERA_ASSIGN_OR_RETURN(taken, TakeMemory(rank.device, 1000));
           }
           std::vector<float> values(kElements, 1.0f);
           const absl::Status status = model.unit->ScatterWeight(
               0, TensorView(values.data(),
                             model.unit->parameter_layout(0).meta()));
           EXPECT_EQ(model.context->status().code(), status.code());
           return status;
         });
}

TEST_P(FailureOfOneRank, NoMemoryToCountWhatIsNotFinite) {
  Expect(1, absl::StatusCode::kResourceExhausted, "device: no memory for",
         MissingGradients::kZero,
         [](LocalRank& rank, Model& model) -> absl::Status {
           TESSERA_ASSIGN_OR_RETURN(GradientNorm norm,
                                    GradientNorm::Create(*model.context));
           TESSERA_RETURN_IF_ERROR(
               model.Differentiate(rank.stream, NAN, /*is_missing=*/false));
           TESSERA_RETURN_IF_ERROR(norm.Compute());
           TESSERA_RETURN_IF_ERROR(model.context->Synchronize());
           Buffer taken;
           if (rank.rank == 1) {
             TESSERA_ASSIGN_OR_RETURN(taken, TakeMemory(rank.device, 0));
           }
           const absl::Status status = norm.CheckFinite();
           EXPECT_OK(model.context->status());
           return status;
         });
}

// The stream is busy when the scatter fails. What it has still to read are the
// caller's values.
TEST(ScatterWeightTest, HasReadTheValuesWhereItFails) {
  LocalRunOptions options;
  options.device.streams = CpuStreams::kWorker;
  std::barrier all(2);
  (void)RunLocalRanks(
      2,
      [&](LocalRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(Model model,
                                 Model::Create(rank, MissingGradients::kZero));
        std::vector<float> values(kElements, 1.0f);
        const TensorView view(values.data(),
                              model.unit->parameter_layout(0).meta());
        TESSERA_RETURN_IF_ERROR(model.unit->ScatterWeight(0, view));
        all.arrive_and_wait();
        if (rank.rank == 1) {
          model.context->comms().Abort(absl::DataLossError("lost"));
        }
        all.arrive_and_wait();
        std::atomic<bool> is_over = false;
        if (rank.rank == 0) {
          TESSERA_RETURN_IF_ERROR(rank.stream.Launch({.name = "late"}, [&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            is_over = true;
            return absl::OkStatus();
          }));
          EXPECT_THAT(model.unit->ScatterWeight(0, view),
                      StatusIs(absl::StatusCode::kAborted, HasSubstr("lost")));
          EXPECT_TRUE(is_over);
        }
        all.arrive_and_wait();
        return absl::OkStatus();
      },
      options);
}

}  // namespace
}  // namespace tessera
