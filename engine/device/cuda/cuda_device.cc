#include "engine/device/cuda/cuda_device.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cuda/attention_split.h"
#include "engine/device/cuda/cuda_row_math.h"
#include "engine/device/cuda/handles.cuh"
#include "engine/device/cuda/kernels/kernels.cuh"
#include "engine/device/cuda/library_attention.h"
#include "engine/device/cuda/native_attention.h"
#include "engine/device/cuda/staging.h"
#include "engine/device/memory_meter.h"

namespace hilbert_ring {
namespace cuda {
namespace {

absl::Status UseDevice(int ordinal) {
  return CudaStatus(cudaSetDevice(ordinal), absl::StrCat("using CUDA device ", ordinal));
}

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const DeviceOptions& options) : options_(options) {}
  ~CudaDevice() override;
  absl::Status Prepare();

  DeviceInfo info() const override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override;
  bool host_memory() const override { return false; }

  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    RETURN_IF_ERROR(UseDevice(options_.ordinal));
    return staging_->CopyIn(to, from, bytes);
  }
  absl::Status CopyRowsIn(const RowsIn& rows) override {
    RETURN_IF_ERROR(UseDevice(options_.ordinal));
    return staging_->CopyRowsIn(rows);
  }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    RETURN_IF_ERROR(UseDevice(options_.ordinal));
    return staging_->CopyOut(to, from, bytes);
  }

  absl::StatusOr<std::unique_ptr<HostPin>> Pin(void* memory, int64_t bytes) override {
    RETURN_IF_ERROR(UseDevice(options_.ordinal));
    return staging_->Pin(memory, bytes);
  }

  absl::Status FillFloats(float* to, int64_t count, float value) override {
    return Compute("filling", [&] { return LaunchFillFloats(to, count, value, stream_.get()); });
  }
  absl::Status FillSequence(int64_t* to, int64_t count, int64_t first) override {
    return Compute("filling", [&] { return LaunchFillSequence(to, count, first, stream_.get()); });
  }
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override;
  absl::Status Merge(std::span<const MergeTask> tasks) override;
  absl::Status Finalize(std::span<const FinalizeTask> tasks) override;
  absl::Status Pack(std::span<const PackTask> tasks) override;
  absl::StatusOr<RowMath*> row_math() override;

 private:
  class PoolBuffer;

  std::string KernelName() const;
  void Free(void* data, int64_t bytes);
  absl::Status Begin();
  absl::Status End(cudaError_t error, absl::string_view what);
  template <typename Launch>
  absl::Status Compute(absl::string_view what, const Launch& launch);
  template <typename Task>
  absl::Status ComputeAll(absl::string_view what, std::span<const Task> tasks,
                          cudaError_t (*launch)(const Task&, cudaStream_t));

  const DeviceOptions options_;
  cudaDeviceProp properties_{};
  MemoryPool pool_;
  Stream memory_stream_;
  Stream stream_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<MemoryMeter> meter_;
  std::unique_ptr<NativeAttention> native_;
  std::unique_ptr<LibraryAttention> library_;  // null: native kernels alone
  std::unique_ptr<AttentionSplit> split_;      // between the two, if library_ is set
  Mutex row_math_mutex_;                       // held last
  std::unique_ptr<RowMath> row_math_ ABSL_GUARDED_BY(row_math_mutex_);
};

class CudaDevice::PoolBuffer : public Buffer {
 public:
  PoolBuffer(CudaDevice& device, void* data, int64_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  ~PoolBuffer() override { device_.Free(data_, bytes_); }
  PoolBuffer(const PoolBuffer&) = delete;
  PoolBuffer& operator=(const PoolBuffer&) = delete;

  std::byte* data() override { return static_cast<std::byte*>(data_); }
  int64_t bytes() const override { return bytes_; }

 private:
  CudaDevice& device_;
  void* data_;
  int64_t bytes_;
};

// No other thread has the device any more.
CudaDevice::~CudaDevice() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  cudaSetDevice(options_.ordinal);
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
  row_math_.reset();
  split_.reset();
  library_.reset();
  native_.reset();
  staging_.reset();
  if (memory_stream_.get() != nullptr) cudaStreamSynchronize(memory_stream_.get());
}

absl::Status CudaDevice::Prepare() {
  absl::Status status = UseDevice(options_.ordinal);
  RETURN_IF_ERROR(status);
  status = CudaStatus(cudaGetDeviceProperties(&properties_, options_.ordinal),
                      absl::StrCat("asking CUDA device ", options_.ordinal));
  RETURN_IF_ERROR(status);
  meter_ = std::make_unique<MemoryMeter>(static_cast<int64_t>(
      options_.memory_fraction * static_cast<double>(properties_.totalGlobalMem)));
  cudaMemPoolProps pool_properties{};
  pool_properties.allocType = cudaMemAllocationTypePinned;
  pool_properties.location.type = cudaMemLocationTypeDevice;
  pool_properties.location.id = options_.ordinal;
  cudaMemPool_t pool = nullptr;
  status.Update(CudaStatus(cudaMemPoolCreate(&pool, &pool_properties), "making a memory pool"));
  RETURN_IF_ERROR(status);
  pool_ = MemoryPool(pool);
  // By default the pool unmaps free memory whenever a thread waits for a stream.
  uint64_t kept_bytes = static_cast<uint64_t>(meter_->limit());
  status.Update(
      CudaStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes),
                 "keeping the pool's memory"));
  status.Update(MakeStream(memory_stream_));
  status.Update(MakeStream(stream_));
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(staging_, Staging::Make());
  ASSIGN_OR_RETURN(native_, NativeAttention::Make(options_, properties_, *this));
  ASSIGN_OR_RETURN(library_, MakeLibraryAttention(options_.attention_kernel,
                                                  10 * properties_.major + properties_.minor));
  if (library_ != nullptr) {
    split_ = std::make_unique<AttentionSplit>(
        AttentionSplitOptions{.wanted = options_.attention_kernel}, *library_,
        [this](std::span<const AttentionTask> tasks, const AttendControl& control,
               int64_t& scores) { return native_->Attend(tasks, control, stream_.get(), scores); },
        [this] { return End(cudaSuccess, "attention by the library"); }, SecondsNow);
  }
  return absl::OkStatus();
}

DeviceInfo CudaDevice::info() const {
  return {.name = absl::StrCat(properties_.name, ", compute capability ", properties_.major, ".",
                               properties_.minor),
          .kernel = absl::StrCat("cuda/", KernelName()),
          .memory_bytes = meter_->limit(),
          .memory_peak_bytes = meter_->peak()};
}

std::string CudaDevice::KernelName() const {
  if (library_ == nullptr) return native_->name();
  if (options_.attention_kernel == AttentionKernel::kCudnn) return library_->name();
  return absl::StrCat(library_->name(), "+", native_->name());
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaDevice::Allocate(int64_t bytes) {
  if (bytes == 0) return std::make_unique<PoolBuffer>(*this, nullptr, 0);
  absl::Status status = UseDevice(options_.ordinal);
  if (status.ok()) status = meter_->Take(bytes);
  RETURN_IF_ERROR(status);
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  cudaError_t error = cudaMallocFromPoolAsync(&data, size, pool_.get(), memory_stream_.get());
  if (error == cudaSuccess) error = cudaMemsetAsync(data, 0, size, memory_stream_.get());
  if (error == cudaSuccess) error = cudaStreamSynchronize(memory_stream_.get());
  if (error != cudaSuccess) {
    Free(data, bytes);
    cudaGetLastError();  // a refused allocation leaves the device as it was
    return CudaStatus(error, absl::StrCat("the device was asked for ", bytes, " bytes"));
  }
  return std::make_unique<PoolBuffer>(*this, data, bytes);
}

// Copies into the buffer may still be in progress.
void CudaDevice::Free(void* data, int64_t bytes) {
  if (bytes == 0) return;
  if (data != nullptr && UseDevice(options_.ordinal).ok()) {
    staging_->Follow(memory_stream_.get()).IgnoreError();
    cudaFreeAsync(data, memory_stream_.get());
    cudaStreamSynchronize(memory_stream_.get());  // the pool returns memory only then
  }
  meter_->Give(bytes);
}

absl::Status CudaDevice::Begin() {
  absl::Status status = UseDevice(options_.ordinal);
  if (status.ok()) status = staging_->Follow(stream_.get());
  return status;
}

// Waits for the stream: its work must not outlive the call, even after an error.
absl::Status CudaDevice::End(cudaError_t error, absl::string_view what) {
  const cudaError_t ended = cudaStreamSynchronize(stream_.get());
  return CudaStatus(error != cudaSuccess ? error : ended, what);
}

template <typename Launch>
absl::Status CudaDevice::Compute(absl::string_view what, const Launch& launch) {
  RETURN_IF_ERROR(Begin());
  return End(launch(), what);
}

template <typename Task>
absl::Status CudaDevice::ComputeAll(absl::string_view what, std::span<const Task> tasks,
                                    cudaError_t (*launch)(const Task&, cudaStream_t)) {
  if (tasks.empty()) return absl::OkStatus();
  return Compute(what, [&] {
    for (const Task& task : tasks) {
      if (const cudaError_t error = launch(task, stream_.get()); error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

absl::Status CudaDevice::Merge(std::span<const MergeTask> tasks) {
  return ComputeAll("merging results", tasks, LaunchMerge);
}

absl::Status CudaDevice::Finalize(std::span<const FinalizeTask> tasks) {
  return ComputeAll("rounding results", tasks, LaunchFinalize);
}

absl::Status CudaDevice::Pack(std::span<const PackTask> tasks) {
  return ComputeAll("packing rows", tasks, LaunchPack);
}

absl::StatusOr<RowMath*> CudaDevice::row_math() {
  const MutexLock lock(row_math_mutex_);
  if (row_math_ == nullptr) {
    RETURN_IF_ERROR(UseDevice(options_.ordinal));
    ASSIGN_OR_RETURN(auto products, MakeProducts());
    row_math_ =
        MakeRowMath(std::move(products), {.stream = stream_.get(),
                                          .begin = [this] { return Begin(); },
                                          .end = [this] { return End(cudaSuccess, "waiting"); }});
  }
  return row_math_.get();
}

absl::StatusOr<AttendFigures> CudaDevice::Attend(std::span<const AttentionTask> tasks,
                                                 const AttendControl& control) {
  if (control.cancelled && control.cancelled()) return absl::CancelledError("attention cancelled");
  if (tasks.empty()) return AttendFigures{};
  RETURN_IF_ERROR(Begin());
  AttendFigures figures;
  absl::Status status;
  if (split_ == nullptr) {
    status = native_->Attend(tasks, control, stream_.get(), figures.scores);
  } else {
    status = split_->Attend(tasks, control, stream_.get(), figures);
  }
  absl::Status ended = End(cudaSuccess, "attention");
  status.Update(ended);
  RETURN_IF_ERROR(status);
  return figures;
}

}  // namespace
}  // namespace cuda

absl::Status FindCudaDevice(int ordinal) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && ordinal < count) return absl::OkStatus();
  cudaGetLastError();
  return absl::FailedPreconditionError(absl::StrCat(
      "no CUDA device ", ordinal, ": ",
      error != cudaSuccess ? absl::StrCat(cudaGetErrorName(error), ", ", cudaGetErrorString(error))
                           : absl::StrCat("the process sees ", count)));
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const DeviceOptions& options) {
  RETURN_IF_ERROR(FindCudaDevice(options.ordinal));
  auto device = std::make_unique<cuda::CudaDevice>(options);
  RETURN_IF_ERROR(device->Prepare());
  return device;
}

}  // namespace hilbert_ring
