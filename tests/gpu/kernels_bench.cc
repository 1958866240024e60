// The kernels of a GPU beside a copy on the device: how much of its bandwidth
// they reach, in bytes read and written.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tessera/base/status_macros.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

constexpr int64_t kBytes = int64_t{256} << 20;  // of the widest operand
constexpr int kTurns = 21;
constexpr double kGoal = 0.85;

absl::Status ToStatus(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(cudaGetErrorString(error));
}

struct Kernel {
  std::string name;
  int64_t bytes;  // read and written
  std::function<absl::Status()> enqueue;
};

// Measures time on a stream.
class Stopwatch {
 public:
  explicit Stopwatch(Stream& stream)
      : stream_(static_cast<cudaStream_t>(stream.native_handle())) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  absl::StatusOr<double> Seconds(const Kernel& kernel) {
    TESSERA_RETURN_IF_ERROR(ToStatus(cudaEventRecord(begin_, stream_)));
    TESSERA_RETURN_IF_ERROR(kernel.enqueue());
    TESSERA_RETURN_IF_ERROR(ToStatus(cudaEventRecord(end_, stream_)));
    TESSERA_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(end_)));
    float milliseconds = 0;
    TESSERA_RETURN_IF_ERROR(
        ToStatus(cudaEventElapsedTime(&milliseconds, begin_, end_)));
    return milliseconds * 1e-3;
  }

 private:
  const cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Memory for the operands of one kernel, each of kBytes.
class Operands {
 public:
  static absl::StatusOr<Operands> Create(Device& device, Stream& stream) {
    Operands operands;
    for (int k = 0; k < 4; ++k) {
      TESSERA_ASSIGN_OR_RETURN(Buffer buffer,
                               device.Allocate(kBytes, "operand"));
      TESSERA_RETURN_IF_ERROR(device.kernels().Fill(
          stream, TensorView::Flat(buffer.data(), DType::kF32, kBytes / 4),
          0.5));
      operands.buffers_.push_back(std::move(buffer));
    }
    return operands;
  }

  TensorView Flat(int operand, DType dtype, int64_t n) const {
    return TensorView::Flat(buffers_[operand].data(), dtype, n);
  }
  // Half of every row: what a rank packs that has its columns cut.
  TensorView HalfRows(int operand, DType dtype, int64_t columns) const {
    const int64_t rows = kBytes / SizeOf(dtype) / columns;
    const TensorMeta meta =
        TensorMeta::Create(dtype, {rows, columns / 2}).value();
    return TensorView::Strided(buffers_[operand].data(), meta, {columns, 1})
        .value();
  }
  TensorView Number(int operand) const { return Flat(operand, DType::kF64, 1); }

 private:
  std::vector<Buffer> buffers_;
};

// Adds kernels to a list.
class KernelList {
 public:
  KernelList(Kernels& kernels, Stream& stream, const Operands& operands)
      : kernels_(kernels), stream_(stream), operands_(operands) {}

  std::vector<Kernel> All() {
    AddCopies();
    for (DType dtype : {DType::kF32, DType::kBF16}) AddFill(dtype);
    AddCast(DType::kBF16, DType::kF32);
    AddCast(DType::kF32, DType::kBF16);
    AddCast(DType::kF16, DType::kF32);
    AddCast(DType::kF32, DType::kF16);
    AddCast(DType::kF32, DType::kF64);
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      AddScale(dtype);
      AddAdd(dtype);
      AddAccumulate(dtype);
    }
    AddOptimizers();
    AddNorms();
    return std::move(list_);
  }

 private:
  void Put(std::string name, int64_t bytes,
           std::function<absl::Status()> enqueue) {
    list_.push_back({std::move(name), bytes, std::move(enqueue)});
  }
  TensorView Whole(int operand, DType dtype) const {
    return operands_.Flat(operand, dtype, kBytes / SizeOf(dtype));
  }

  void AddCopies() {
    for (int64_t columns : {64, 4096}) {
      const TensorView src = operands_.HalfRows(1, DType::kBF16, columns);
      const TensorView dst(Whole(0, DType::kBF16).data(), src.meta());
      Put(absl::StrCat("pack bf16 rows of ", columns / 2), 2 * src.num_bytes(),
          [this, src, dst] { return kernels_.Copy(stream_, dst, src); });
      Put(absl::StrCat("unpack bf16 rows of ", columns / 2),
          2 * src.num_bytes(),
          [this, src, dst] { return kernels_.Copy(stream_, src, dst); });
    }
  }
  void AddFill(DType dtype) {
    const TensorView x = Whole(0, dtype);
    Put(absl::StrCat("fill ", DTypeName(dtype)), x.num_bytes(),
        [this, x] { return kernels_.Fill(stream_, x, 1.0); });
  }
  void AddCast(DType to, DType from) {
    const int64_t n = kBytes / std::max(SizeOf(to), SizeOf(from));
    const TensorView dst = operands_.Flat(0, to, n);
    const TensorView src = operands_.Flat(1, from, n);
    Put(absl::StrCat("cast ", DTypeName(from), " to ", DTypeName(to)),
        dst.num_bytes() + src.num_bytes(),
        [this, dst, src] { return kernels_.Cast(stream_, dst, src); });
  }
  void AddScale(DType dtype) {
    const TensorView x = Whole(0, dtype);
    Put(absl::StrCat("scale ", DTypeName(dtype)), 2 * x.num_bytes(),
        [this, x] { return kernels_.Scale(stream_, x, 0.999); });
  }
  void AddAdd(DType dtype) {
    const TensorView dst = Whole(0, dtype);
    const TensorView src = Whole(1, dtype);
    Put(absl::StrCat("add ", DTypeName(dtype)), 3 * dst.num_bytes(),
        [this, dst, src] { return kernels_.Add(stream_, dst, src); });
  }
  void AddAccumulate(DType from) {
    const TensorView dst = Whole(0, DType::kF32);
    const TensorView src = operands_.Flat(1, from, dst.num_elements());
    Put(absl::StrCat("accumulate ", DTypeName(from), " in f32"),
        2 * dst.num_bytes() + src.num_bytes(), [this, dst, src] {
          return kernels_.AccumulateScaled(stream_, dst, src, 0.125);
        });
  }
  void AddOptimizers() {
    const TensorView w = Whole(0, DType::kF32);
    const TensorView g = Whole(1, DType::kF32);
    const TensorView m = Whole(2, DType::kF32);
    const TensorView v = Whole(3, DType::kF32);
    Put("sgd f32, momentum", 5 * w.num_bytes(), [this, w, g, m] {
      return kernels_.Sgd(stream_, w, g, m,
                          {.learning_rate = 1e-3, .momentum = 0.9});
    });
    Put("adamw f32", 7 * w.num_bytes(), [this, w, g, m, v] {
      return kernels_.AdamW(stream_, w, g, m, v, {.learning_rate = 1e-3});
    });
  }
  void AddNorms() {
    const TensorView x = Whole(0, DType::kF32);
    const TensorView number = operands_.Number(1);
    Put("add squares f32", x.num_bytes(),
        [this, x, number] { return kernels_.AddSquares(stream_, number, x); });
    Put("count non-finite f32", x.num_bytes(), [this, x, number] {
      return kernels_.CountNonFinite(stream_, number, x);
    });
    Put("clip to norm f32", 2 * x.num_bytes(), [this, x, number] {
      TESSERA_RETURN_IF_ERROR(kernels_.Fill(stream_, number, 1.0));
      return kernels_.ClipToNorm(stream_, x, number, 0.5);
    });
  }

  Kernels& kernels_;
  Stream& stream_;
  const Operands& operands_;
  std::vector<Kernel> list_;
};

absl::Status Measure(Stopwatch& stopwatch, const Kernel& copy,
                     const Kernel& kernel) {
  std::vector<double> copies;
  std::vector<double> kernels;
  TESSERA_RETURN_IF_ERROR(stopwatch.Seconds(kernel).status());  // to warm up
  for (int turn = 0; turn < kTurns; ++turn) {
    TESSERA_ASSIGN_OR_RETURN(const double copied, stopwatch.Seconds(copy));
    TESSERA_ASSIGN_OR_RETURN(const double ran, stopwatch.Seconds(kernel));
    copies.push_back(copied);
    kernels.push_back(ran);
  }
  const double bandwidth =
      static_cast<double>(kernel.bytes) / Median(std::move(kernels));
  const double ratio =
      bandwidth * Median(std::move(copies)) / static_cast<double>(copy.bytes);
  absl::PrintF("%-24s %8.0f GB/s %6.2f%s\n", kernel.name, bandwidth * 1e-9,
               ratio, ratio < kGoal ? "  below the goal" : "");
  return absl::OkStatus();
}

absl::Status Run() {
  TESSERA_ASSIGN_OR_RETURN(const auto device, CudaDevice::Create(0));
  TESSERA_ASSIGN_OR_RETURN(const auto stream, device->NewStream("bench"));
  TESSERA_ASSIGN_OR_RETURN(const Operands operands,
                           Operands::Create(*device, *stream));
  const auto to = operands.Flat(0, DType::kF32, kBytes / 4);
  const auto from = operands.Flat(1, DType::kF32, kBytes / 4);
  const auto handle = static_cast<cudaStream_t>(stream->native_handle());
  const Kernel copy = {
      "cudaMemcpyAsync", 2 * kBytes, [=] {
        return ToStatus(cudaMemcpyAsync(to.data(), from.data(), kBytes,
                                        cudaMemcpyDeviceToDevice, handle));
      }};
  absl::PrintF("%s, %d MiB, median of %d, ratio to a copy (goal %.2f)\n",
               device->properties().gpu, kBytes >> 20, kTurns, kGoal);
  Stopwatch stopwatch(*stream);
  TESSERA_RETURN_IF_ERROR(Measure(stopwatch, copy, copy));
  for (const Kernel& kernel :
       KernelList(device->kernels(), *stream, operands).All()) {
    TESSERA_RETURN_IF_ERROR(Measure(stopwatch, copy, kernel));
  }
  return stream->Synchronize();
}

}  // namespace
}  // namespace tessera

int main() {
  const absl::Status status = tessera::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_kernels_bench: %s\n", status.ToString().c_str());
  return 1;
}
