#include "engine/device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/device/check_task.h"
#include "engine/device/cuda/handles.cuh"
#include "engine/device/cuda/kernels.cuh"
#include "engine/device/cuda/launch_plan.h"
#include "engine/device/cuda/library_attention.h"
#include "engine/device/cuda/staging.h"
#include "engine/device/memory_meter.h"

namespace hilbert_ring {
namespace cuda {
namespace {

constexpr int kWarpMajor = 8;       // compute capability from which products of a warp run
constexpr int kWarpgroupMajor = 9;  // the one that has products of a warpgroup

// What our kernels may reach of a multiprocessor's clock cycle: guesses on the low side, which make
// launches shorter than kLaunchSeconds, not longer.
constexpr double kTensorFlopsPerCycle = 1024;
constexpr double kPlainFlopsPerCycle = 128;
constexpr double kLaunchSeconds = 0.02;

constexpr int kSlots = 2;  // launches in flight

// Of calls of the library in flight together: 6 ms at head dim 64 and 700 TFLOP/s. Each may be as
// long as a launch.
constexpr int64_t kLibraryScores = int64_t{1} << 34;

absl::Status UseDevice(int ordinal) {
  return CudaStatus(cudaSetDevice(ordinal), absl::StrCat("using CUDA device ", ordinal));
}

MatrixUnits UnitsOf(const cudaDeviceProp& properties, const DeviceOptions& options) {
  if (properties.major < kWarpMajor) return MatrixUnits::kNone;
  return properties.major == kWarpgroupMajor && options.warpgroup_products && HasWarpgroupKernels()
             ? MatrixUnits::kWarpgroup
             : MatrixUnits::kWarp;
}

cudaError_t LaunchKernel(const PlannedLaunch& planned, const AttendLaunch& launch,
                         cudaStream_t stream) {
  const bool bfloat16 = planned.dtype == DataType::kBFloat16;
  switch (TileOf(planned.kernel).units) {
    case MatrixUnits::kNone:
      return LaunchFloat32(planned.kernel, launch, stream);
    case MatrixUnits::kWarp:
      return (bfloat16 ? LaunchBFloat16 : LaunchFloat16)(planned.kernel, launch, stream);
    case MatrixUnits::kWarpgroup:
      return (bfloat16 ? LaunchBFloat16Warpgroups : LaunchFloat16Warpgroups)(planned.kernel, launch,
                                                                             stream);
  }
  return cudaErrorInvalidValue;
}

// What one launch needs until it has ended.
struct LaunchSlot {
  PinnedMemory pinned;  // works, then the count of scores
  void* device = nullptr;
  Event done;

  static constexpr int64_t kScoresAt = int64_t{kMostWorks} * sizeof(AttentionWork);
  static constexpr int64_t kBytes = kScoresAt + sizeof(unsigned long long);

  void* PinnedWorks() const { return pinned.get(); }
  unsigned long long* PinnedScores() const {
    return reinterpret_cast<unsigned long long*>(static_cast<std::byte*>(pinned.get()) + kScoresAt);
  }
  unsigned long long* DeviceScores() const {
    return reinterpret_cast<unsigned long long*>(static_cast<std::byte*>(device) + kScoresAt);
  }
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const DeviceOptions& options) : options_(options) {}
  ~CudaDevice() override;
  absl::Status Prepare();

  DeviceInfo info() const override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override;
  bool host_memory() const override { return false; }

  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    if (absl::Status status = UseDevice(options_.ordinal); !status.ok()) return status;
    return staging_->CopyIn(to, from, bytes);
  }
  absl::Status CopyRowsIn(const RowsIn& rows) override {
    if (absl::Status status = UseDevice(options_.ordinal); !status.ok()) return status;
    return staging_->CopyRowsIn(rows);
  }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    if (absl::Status status = UseDevice(options_.ordinal); !status.ok()) return status;
    return staging_->CopyOut(to, from, bytes);
  }

  absl::Status FillFloats(float* to, int64_t count, float value) override {
    return Compute("filling", [&] { return LaunchFillFloats(to, count, value, stream_.get()); });
  }
  absl::Status FillSequence(int64_t* to, int64_t count, int64_t first) override {
    return Compute("filling", [&] { return LaunchFillSequence(to, count, first, stream_.get()); });
  }
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override;
  absl::Status AddZeroKeys(std::span<const ZeroKeysTask> tasks) override;
  absl::Status Finalize(std::span<const FinalizeTask> tasks) override;
  absl::Status Pack(std::span<const PackTask> tasks) override;

 private:
  class PoolBuffer;

  void Free(void* data, int64_t bytes);
  absl::Status Begin();
  absl::Status End(cudaError_t error, absl::string_view what);
  template <typename Launch>
  absl::Status Compute(absl::string_view what, const Launch& launch);
  template <typename Task>
  absl::Status ComputeAll(absl::string_view what, std::span<const Task> tasks,
                          cudaError_t (*launch)(const Task&, cudaStream_t));

  absl::Status AttendByLibrary(std::span<const AttentionTask> tasks, const AttendControl& control,
                               int64_t& scores);
  absl::Status AttendNatively(std::span<const AttentionTask> tasks, const AttendControl& control,
                              int64_t& scores);
  absl::Status Start(const PlannedLaunch& launch, LaunchSlot& slot);
  absl::Status Await(const LaunchSlot& slot, const AttendControl& control, int64_t& scores);

  const DeviceOptions options_;
  cudaDeviceProp properties_{};
  LaunchRates rates_;
  MemoryPool pool_;
  Stream memory_stream_;
  Stream stream_;
  std::unique_ptr<Staging> staging_;
  std::array<LaunchSlot, kSlots> slots_;
  std::unique_ptr<LibraryAttention> library_;  // null: our own kernels alone
  std::unique_ptr<MemoryMeter> meter_;
  std::unique_ptr<Buffer> scratch_;  // of tasks with very many keys; made when first used
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

CudaDevice::~CudaDevice() {
  cudaSetDevice(options_.ordinal);
  scratch_.reset();
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
  for (LaunchSlot& slot : slots_) {
    if (slot.device != nullptr) cudaFree(slot.device);
  }
  staging_.reset();
  if (memory_stream_.get() != nullptr) cudaStreamSynchronize(memory_stream_.get());
}

absl::Status CudaDevice::Prepare() {
  absl::Status status = UseDevice(options_.ordinal);
  if (!status.ok()) return status;
  int clock_khz = 0;
  status.Update(CudaStatus(cudaGetDeviceProperties(&properties_, options_.ordinal),
                           absl::StrCat("asking CUDA device ", options_.ordinal)));
  status.Update(
      CudaStatus(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, options_.ordinal),
                 absl::StrCat("asking CUDA device ", options_.ordinal)));
  if (!status.ok()) return status;
  const double cycles = 1e3 * clock_khz * properties_.multiProcessorCount;
  rates_ = {.multiprocessors = properties_.multiProcessorCount,
            .matrix_units = UnitsOf(properties_, options_),
            .tensor_flops = cycles * kTensorFlopsPerCycle,
            .plain_flops = cycles * kPlainFlopsPerCycle,
            .launch_seconds = kLaunchSeconds};
  cudaError_t error = PrepareFloat32Kernels();
  if (error == cudaSuccess && rates_.matrix_units != MatrixUnits::kNone) {
    error = PrepareBFloat16Kernels();
    if (error == cudaSuccess) error = PrepareFloat16Kernels();
  }
  if (error == cudaSuccess && rates_.matrix_units == MatrixUnits::kWarpgroup) {
    error = PrepareBFloat16Warpgroups();
    if (error == cudaSuccess) error = PrepareFloat16Warpgroups();
  }
  status.Update(CudaStatus(error, absl::StrCat("no CUDA device ", options_.ordinal,
                                               ": kernels for ", properties_.name)));
  if (!status.ok()) return status;

  meter_ = std::make_unique<MemoryMeter>(static_cast<int64_t>(
      options_.memory_fraction * static_cast<double>(properties_.totalGlobalMem)));
  cudaMemPoolProps pool_properties{};
  pool_properties.allocType = cudaMemAllocationTypePinned;
  pool_properties.location.type = cudaMemLocationTypeDevice;
  pool_properties.location.id = options_.ordinal;
  cudaMemPool_t pool = nullptr;
  status.Update(CudaStatus(cudaMemPoolCreate(&pool, &pool_properties), "making a memory pool"));
  if (!status.ok()) return status;
  pool_ = MemoryPool(pool);
  status.Update(MakeStream(memory_stream_));
  status.Update(MakeStream(stream_));
  for (LaunchSlot& slot : slots_) {
    status.Update(MakePinned(slot.pinned, LaunchSlot::kBytes));
    status.Update(MakeEvent(slot.done));
    status.Update(
        CudaStatus(cudaMalloc(&slot.device, LaunchSlot::kBytes), "allocating memory for launches"));
  }
  if (!status.ok()) return status;
  auto staging = Staging::Make();
  if (!staging.ok()) return staging.status();
  staging_ = *std::move(staging);
  auto library =
      MakeLibraryAttention(options_.attention_kernel, 10 * properties_.major + properties_.minor);
  if (!library.ok()) return library.status();
  library_ = *std::move(library);
  return absl::OkStatus();
}

DeviceInfo CudaDevice::info() const {
  return {.name = absl::StrCat(properties_.name, ", compute capability ", properties_.major, ".",
                               properties_.minor),
          .kernel =
              absl::StrCat("cuda/", library_ != nullptr ? library_->name()
                                    : rates_.matrix_units == MatrixUnits::kWarpgroup ? "native-sm90"
                                                                                     : "native"),
          .memory_bytes = meter_->limit(),
          .memory_peak_bytes = meter_->peak()};
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaDevice::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("bytes is ", bytes, ", must be at least 0"));
  }
  if (bytes == 0) return std::make_unique<PoolBuffer>(*this, nullptr, 0);
  absl::Status status = UseDevice(options_.ordinal);
  if (status.ok()) status = meter_->Take(bytes);
  if (!status.ok()) return status;
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

// Copies into the buffer may still be under way.
void CudaDevice::Free(void* data, int64_t bytes) {
  if (bytes == 0) return;
  if (data != nullptr && UseDevice(options_.ordinal).ok()) {
    staging_->Follow(memory_stream_.get()).IgnoreError();
    cudaFreeAsync(data, memory_stream_.get());
    cudaStreamSynchronize(memory_stream_.get());  // only then the pool gives memory back
  }
  meter_->Give(bytes);
}

absl::Status CudaDevice::Begin() {
  absl::Status status = UseDevice(options_.ordinal);
  if (status.ok()) status = staging_->Follow(stream_.get());
  return status;
}

// Waits for what was put on the stream, which must not outlive the call even after an error.
absl::Status CudaDevice::End(cudaError_t error, absl::string_view what) {
  const cudaError_t ended = cudaStreamSynchronize(stream_.get());
  return CudaStatus(error != cudaSuccess ? error : ended, what);
}

template <typename Launch>
absl::Status CudaDevice::Compute(absl::string_view what, const Launch& launch) {
  if (absl::Status status = Begin(); !status.ok()) return status;
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

absl::Status CudaDevice::AddZeroKeys(std::span<const ZeroKeysTask> tasks) {
  for (const ZeroKeysTask& task : tasks) {
    if (absl::Status status = CheckTask(task); !status.ok()) return status;
  }
  return ComputeAll("adding zero keys", tasks, LaunchZeroKeys);
}

absl::Status CudaDevice::Finalize(std::span<const FinalizeTask> tasks) {
  return ComputeAll("rounding results", tasks, LaunchFinalize);
}

absl::Status CudaDevice::Pack(std::span<const PackTask> tasks) {
  return ComputeAll("packing rows", tasks, LaunchPack);
}

absl::StatusOr<AttendFigures> CudaDevice::Attend(std::span<const AttentionTask> tasks,
                                                 const AttendControl& control) {
  for (const AttentionTask& task : tasks) {
    if (absl::Status status = CheckTask(task); !status.ok()) return status;
  }
  if (control.cancelled && control.cancelled()) return absl::CancelledError("attention cancelled");
  if (tasks.empty()) return AttendFigures{};
  if (absl::Status status = Begin(); !status.ok()) return status;
  int64_t scores = 0;
  absl::Status status;
  if (library_ == nullptr) {
    status = AttendNatively(tasks, control, scores);
  } else {
    status = AttendByLibrary(tasks, control, scores);
  }
  absl::Status ended = End(cudaSuccess, "attention");
  status.Update(ended);
  if (!status.ok()) return status;
  return AttendFigures{.scores = scores};
}

// What the library takes, and the rest by our own kernels.
absl::Status CudaDevice::AttendByLibrary(std::span<const AttentionTask> tasks,
                                         const AttendControl& control, int64_t& scores) {
  std::vector<AttentionTask> own;
  int64_t unseen = 0;  // scores of calls that were not waited for
  const auto see = [&]() -> absl::Status {
    absl::Status status = End(cudaSuccess, "attention by the library");
    if (!status.ok()) return status;
    scores += unseen;
    if (control.progress) control.progress(unseen);
    unseen = 0;
    if (control.cancelled && control.cancelled()) {
      return absl::CancelledError("attention cancelled");
    }
    return status;
  };
  for (const AttentionTask& task : tasks) {
    auto taken = library_->Attend(task, stream_.get());
    if (!taken.ok()) return taken.status();
    unseen += *taken;
    if (*taken == 0) own.push_back(task);
    if (unseen < kLibraryScores) continue;
    if (absl::Status status = see(); !status.ok()) return status;
  }
  if (unseen > 0) {
    if (absl::Status status = see(); !status.ok()) return status;
  }
  return AttendNatively(own, control, scores);
}

absl::Status CudaDevice::AttendNatively(std::span<const AttentionTask> tasks,
                                        const AttendControl& control, int64_t& scores) {
  const int64_t scratch_bytes = ScratchFloats(tasks, rates_) * static_cast<int64_t>(sizeof(float));
  if (scratch_bytes > (scratch_ == nullptr ? 0 : scratch_->bytes())) {
    scratch_.reset();
    auto scratch = Allocate(scratch_bytes);
    if (!scratch.ok()) return scratch.status();
    scratch_ = *std::move(scratch);
  }
  LaunchPlanner planner(tasks, rates_,
                        scratch_ == nullptr ? nullptr : reinterpret_cast<float*>(scratch_->data()));
  PlannedLaunch launch;
  int64_t started = 0, ended = 0;
  bool more = planner.Next(launch);
  while (more || ended < started) {
    if (more) {
      absl::Status status = Start(launch, slots_[started % kSlots]);
      if (!status.ok()) return status;
      ++started;
      more = planner.Next(launch);
    }
    if (started - ended < kSlots && more) continue;
    if (absl::Status status = Await(slots_[ended % kSlots], control, scores); !status.ok()) {
      return status;
    }
    ++ended;
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Start(const PlannedLaunch& launch, LaunchSlot& slot) {
  const size_t bytes = launch.works.size() * sizeof(AttentionWork);
  std::memcpy(slot.PinnedWorks(), launch.works.data(), bytes);
  cudaError_t error = cudaMemcpyAsync(slot.device, slot.PinnedWorks(), bytes,
                                      cudaMemcpyHostToDevice, stream_.get());
  if (error == cudaSuccess) {
    error = cudaMemsetAsync(slot.DeviceScores(), 0, sizeof(unsigned long long), stream_.get());
  }
  const AttendLaunch attend{.works = static_cast<const AttentionWork*>(slot.device),
                            .count = static_cast<int>(launch.works.size()),
                            .tiles = launch.tiles,
                            .scores = slot.DeviceScores()};
  if (error == cudaSuccess) error = LaunchKernel(launch, attend, stream_.get());
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(slot.PinnedScores(), slot.DeviceScores(), sizeof(unsigned long long),
                            cudaMemcpyDeviceToHost, stream_.get());
  }
  if (error == cudaSuccess) error = cudaEventRecord(slot.done.get(), stream_.get());
  return CudaStatus(error, "starting attention");
}

absl::Status CudaDevice::Await(const LaunchSlot& slot, const AttendControl& control,
                               int64_t& scores) {
  absl::Status status = CudaStatus(cudaEventSynchronize(slot.done.get()), "attention");
  if (!status.ok()) return status;
  const auto computed = static_cast<int64_t>(*slot.PinnedScores());
  scores += computed;
  if (control.progress) control.progress(computed);
  if (control.cancelled && control.cancelled()) return absl::CancelledError("attention cancelled");
  return absl::OkStatus();
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
  if (options.ordinal < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ordinal is ", options.ordinal, ", must be at least 0"));
  }
  if (!(options.memory_fraction > 0 && options.memory_fraction <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("memory_fraction is ", options.memory_fraction,
                                                   ", must be above 0 and at most 1"));
  }
  if (absl::Status status = FindCudaDevice(options.ordinal); !status.ok()) return status;
  auto device = std::make_unique<cuda::CudaDevice>(options);
  if (absl::Status status = device->Prepare(); !status.ok()) return status;
  return device;
}

}  // namespace hilbert_ring
