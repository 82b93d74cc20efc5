#include "engine/device/cuda/native_attention.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::cuda {
namespace {

constexpr int kWarpMajor = 8;       // compute capability from which a warp's products run
constexpr int kWarpgroupMajor = 9;  // the compute capability with a warpgroup's products

// Operations of native kernels a clock cycle of a multiprocessor, which make launches about as long
// as DeviceOptions::launch_seconds. On an H200 the pipelined kernels reached 1,660 to 2,250, the
// others of Hopper 1,190 to 1,250, those of warps 910 to 990.
double TensorFlopsPerCycle(MatrixUnits units) {
  return units == MatrixUnits::kPipelined ? 1600 : units == MatrixUnits::kWarpgroup ? 1200 : 1024;
}
constexpr double kPlainFlopsPerCycle = 128;

// A guess of how many times longer a launch takes if AttendCarefully computes all its tiles.
constexpr double kCarefulSlowness = 32;

// Offsets in a slot's memory.
constexpr size_t kScoresAt = 0;
constexpr size_t kCarefulAt = sizeof(unsigned long long);
constexpr size_t kTakenAt = 2 * sizeof(unsigned long long);
constexpr size_t kNotesBytes = 3 * sizeof(unsigned long long);
constexpr size_t kWorksAt = 64;

// Maps lie after the launch's works.
size_t MapsAt(size_t works) {
  const size_t end = kWorksAt + works * sizeof(AttentionWork);
  return (end + alignof(TensorMap) - 1) / alignof(TensorMap) * alignof(TensorMap);
}

size_t SlotBytes(MatrixUnits units) {
  const size_t maps = units == MatrixUnits::kPipelined ? 2 * kMostWorks : 0;
  return MapsAt(kMostWorks) + maps * sizeof(TensorMap);
}

MatrixUnits UnitsOf(const cudaDeviceProp& properties, const DeviceOptions& options) {
  if (properties.major < kWarpMajor) return MatrixUnits::kNone;
  if (properties.major != kWarpgroupMajor || !options.warpgroup_products ||
      !HasWarpgroupKernels()) {
    return MatrixUnits::kWarp;
  }
  if (!options.producer || !HasPipelinedKernels()) return MatrixUnits::kWarpgroup;
  // A driver older than CUDA 12 makes no tensor maps.
  return PrepareTensorMaps() == cudaSuccess ? MatrixUnits::kPipelined : MatrixUnits::kWarpgroup;
}

cudaError_t PrepareKernels(MatrixUnits units) {
  cudaError_t error = PrepareFloat32Kernels();
  if (error == cudaSuccess && units != MatrixUnits::kNone) {
    error = PrepareBFloat16Kernels();
    if (error == cudaSuccess) error = PrepareFloat16Kernels();
  }
  if (error == cudaSuccess && units >= MatrixUnits::kWarpgroup) {
    error = PrepareBFloat16Warpgroups();
    if (error == cudaSuccess) error = PrepareFloat16Warpgroups();
  }
  if (error == cudaSuccess && units == MatrixUnits::kPipelined) {
    error = PrepareBFloat16Pipelines();
    if (error == cudaSuccess) error = PrepareFloat16Pipelines();
  }
  return error;
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
    case MatrixUnits::kPipelined:
      return (bfloat16 ? LaunchBFloat16Pipelines : LaunchFloat16Pipelines)(planned.kernel, launch,
                                                                           stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NativeAttention>> NativeAttention::Make(
    const DeviceOptions& options, const cudaDeviceProp& properties, Device& device) {
  int clock_khz = 0;
  absl::Status status =
      CudaStatus(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, options.ordinal),
                 absl::StrCat("asking CUDA device ", options.ordinal));
  const MatrixUnits units = UnitsOf(properties, options);
  status.Update(CudaStatus(PrepareKernels(units), absl::StrCat("no CUDA device ", options.ordinal,
                                                               ": kernels for ", properties.name)));
  RETURN_IF_ERROR(status);
  auto made = std::unique_ptr<NativeAttention>(new NativeAttention(device));
  const double cycles = 1e3 * clock_khz * properties.multiProcessorCount;
  made->rates_ = {.multiprocessors = properties.multiProcessorCount,
                  .matrix_units = units,
                  .tensor_flops = cycles * TensorFlopsPerCycle(units),
                  .plain_flops = cycles * kPlainFlopsPerCycle,
                  .launch_seconds = options.launch_seconds};
  status = made->PrepareSlots();
  RETURN_IF_ERROR(status);
  return made;
}

NativeAttention::~NativeAttention() {
  for (const Slot& slot : slots_) {
    if (slot.device != nullptr) cudaFree(slot.device);
  }
  if (careful_tiles_ != nullptr) cudaFree(careful_tiles_);
}

absl::Status NativeAttention::PrepareSlots() {
  absl::Status status;
  const size_t bytes = SlotBytes(rates_.matrix_units);
  for (Slot& slot : slots_) {
    status.Update(MakePinned(slot.pinned, static_cast<int64_t>(bytes)));
    status.Update(MakeEvent(slot.done));
    status.Update(CudaStatus(cudaMalloc(&slot.device, bytes), "allocating memory for launches"));
  }
  status.Update(
      CudaStatus(cudaMalloc(&careful_tiles_, kMostTiles), "allocating memory for launches"));
  return status;
}

std::string NativeAttention::name() const {
  switch (rates_.matrix_units) {
    case MatrixUnits::kWarpgroup:
      return "native-sm90";
    case MatrixUnits::kPipelined:
      return "native-sm90-pipelined";
    default:
      return "native";
  }
}

absl::Status NativeAttention::Attend(std::span<const AttentionTask> tasks,
                                     const AttendControl& control, cudaStream_t stream,
                                     int64_t& scores) {
  absl::Status status =
      ReserveScratch(ScratchFloats(tasks, rates_) * static_cast<int64_t>(sizeof(float)));
  RETURN_IF_ERROR(status);
  LaunchPlanner planner(tasks, rates_,
                        scratch_ == nullptr ? nullptr : reinterpret_cast<float*>(scratch_->data()));
  PlannedLaunch launch;
  size_t started = 0, ended = 0;
  bool more = planner.Next(launch);
  while (more || ended < started) {
    if (more) {
      status = Start(launch, slots_[started % slots_.size()], stream);
      RETURN_IF_ERROR(status);
      ++started;
      more = planner.Next(launch);
    }
    if (started - ended < slots_.size() && more) continue;
    bool careful = false;
    status = Await(slots_[ended % slots_.size()], control, scores, careful);
    RETURN_IF_ERROR(status);
    ++ended;
    if (careful) planner.ExpectSlowness(kCarefulSlowness);
  }
  return absl::OkStatus();
}

absl::Status NativeAttention::ReserveScratch(int64_t bytes) {
  if (bytes <= (scratch_ == nullptr ? 0 : scratch_->bytes())) return absl::OkStatus();
  scratch_.reset();
  ASSIGN_OR_RETURN(scratch_, device_.Allocate(bytes));
  return absl::OkStatus();
}

cudaError_t NativeAttention::PutLaunch(const PlannedLaunch& launch, const Slot& slot,
                                       cudaStream_t stream) const {
  const size_t count = launch.works.size();
  auto* const pinned = static_cast<std::byte*>(slot.pinned.get());
  std::memset(pinned, 0, kNotesBytes);
  std::memcpy(pinned + kWorksAt, launch.works.data(), count * sizeof(AttentionWork));
  size_t bytes = kWorksAt + count * sizeof(AttentionWork);
  if (TileOf(launch.kernel).units == MatrixUnits::kPipelined) {
    const size_t maps_at = MapsAt(count);
    const cudaError_t error =
        MakeTensorMaps(launch.works, reinterpret_cast<TensorMap*>(pinned + maps_at));
    if (error != cudaSuccess) return error;
    bytes = maps_at + 2 * count * sizeof(TensorMap);
  }
  return cudaMemcpyAsync(slot.device, pinned, bytes, cudaMemcpyHostToDevice, stream);
}

absl::Status NativeAttention::Start(const PlannedLaunch& launch, const Slot& slot,
                                    cudaStream_t stream) {
  auto* const device = static_cast<std::byte*>(slot.device);
  cudaError_t error = PutLaunch(launch, slot, stream);
  const AttendLaunch attend{
      .works = reinterpret_cast<const AttentionWork*>(device + kWorksAt),
      .count = static_cast<int>(launch.works.size()),
      .tiles = launch.tiles,
      .changes = launch.changes,
      .notes = {.scores = reinterpret_cast<unsigned long long*>(device + kScoresAt),
                .careful = reinterpret_cast<unsigned*>(device + kCarefulAt),
                .careful_tiles = static_cast<unsigned char*>(careful_tiles_),
                .taken = reinterpret_cast<unsigned long long*>(device + kTakenAt)},
      .maps = reinterpret_cast<const TensorMap*>(device + MapsAt(launch.works.size())),
      .multiprocessors = rates_.multiprocessors};
  if (error == cudaSuccess) error = LaunchKernel(launch, attend, stream);
  if (error == cudaSuccess) {
    error = LaunchCareful(launch.kernel, attend, rates_.multiprocessors, stream);
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(slot.pinned.get(), device, kNotesBytes, cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaEventRecord(slot.done.get(), stream);
  return CudaStatus(error, "starting attention");
}

absl::Status NativeAttention::Await(const Slot& slot, const AttendControl& control, int64_t& scores,
                                    bool& careful) {
  RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(slot.done.get()), "attention"));
  const auto* const pinned = static_cast<const std::byte*>(slot.pinned.get());
  unsigned long long counted = 0;
  unsigned any_careful = 0;
  std::memcpy(&counted, pinned + kScoresAt, sizeof(counted));
  std::memcpy(&any_careful, pinned + kCarefulAt, sizeof(any_careful));
  careful = any_careful != 0;
  const auto computed = static_cast<int64_t>(counted);
  scores += computed;
  if (control.progress) control.progress(computed);
  if (control.cancelled && control.cancelled()) return absl::CancelledError("attention cancelled");
  return absl::OkStatus();
}

}  // namespace hilbert_ring::cuda
