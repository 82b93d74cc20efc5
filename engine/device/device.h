// A device: memory and kernels behind one interface.
//
//   auto device = MakeDevice({.kind = DeviceKind::kCpu, .threads = 2}).value();
//   auto buffer = device->Allocate(bytes).value();        // zero-filled
//   device->CopyIn(buffer->data(), rows, bytes);          // memory need not be the host's
//   auto figures = device->Attend(tasks, control);        // returns when all tasks are done
//   buffer.reset();                                       // memory back to the system
//
// Calls are synchronous: the calling thread can read their results when they return. A device is
// used by one thread at a time, except that Allocate, Pin, CopyIn, CopyRowsIn and CopyOut are
// thread-safe: rows move while others are computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/attention.h"

namespace hilbert_ring {

class RowMath;  // row_math.h

struct DeviceInfo {
  std::string name;               // "AMD EPYC, 2 threads"; "NVIDIA H200, compute capability 9.0"
  std::string kernel;             // of Attend: "cpu/avx2", "cuda/native", "cuda/native-sm90"
  int64_t memory_bytes = 0;       // limit of buffers
  int64_t memory_peak_bytes = 0;  // the most that buffers took at once; 0 for host memory
  int threads = 0;                // of a CPU
};

// Memory of a device, aligned to 64 bytes at least, zero when allocated; may be empty. The host
// reads and writes it only if Device::host_memory(). The device outlives it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

// Host memory that the device reaches itself, until the end of this object. The memory and the
// device outlive it.
class HostPin {
 public:
  virtual ~HostPin() = default;
};

// Dense rows in host memory, each with its own place among the rows at `to`.
struct RowsIn {
  void* to = nullptr;          // device memory; row r is at to + r * row_bytes
  const void* from = nullptr;  // host memory, [rows.size()] rows one after the other
  std::span<const int64_t> rows;
  int64_t row_bytes = 0;
};

struct AttendControl {
  // Called between tiles, from any thread; true ends the call with CANCELLED.
  std::function<bool()> cancelled;
  // Called with the scores since the last call, from any thread, at least once per tile of queries.
  std::function<void(int64_t scores)> progress;
};

struct AttendFigures {
  int64_t scores = 0;          // (query, key, head) scores in tiles that were not wholly masked
  int64_t library_scores = 0;  // of those, by a library's attention
  // The library's reason to refuse tasks that suit it; empty: it refused no task.
  std::string library_refusal;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;

  // RESOURCE_EXHAUSTED: the memory is not available.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;

  // Returns whether buffers are host memory. If not, only tasks and this class use addresses in
  // them.
  virtual bool host_memory() const = 0;

  // Copy from host memory into a buffer. The caller may reuse `from` when they return. Later calls
  // of the device, by a thread that knows of the copy, see the new bytes.
  virtual absl::Status CopyIn(void* to, const void* from, int64_t bytes) = 0;
  virtual absl::Status CopyRowsIn(const RowsIn& rows) = 0;

  virtual absl::Status CopyOut(void* to, const void* from, int64_t bytes) = 0;

  // Pins host memory: CopyIn from it and CopyOut to it then use no memory in between. All pages are
  // taken. Returns null if host_memory(). After an error copies work as before.
  virtual absl::StatusOr<std::unique_ptr<HostPin>> Pin(void* memory, int64_t bytes) = 0;

  // to[i] = value, and to[i] = first + i.
  virtual absl::Status FillFloats(float* to, int64_t count, float value) = 0;
  virtual absl::Status FillSequence(int64_t* to, int64_t count, int64_t first) = 0;

  // CANCELLED by control.cancelled: outputs are then undefined. Tasks are of valid specs.
  virtual absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                               const AttendControl& control) = 0;

  virtual absl::Status Merge(std::span<const MergeTask> tasks) = 0;
  virtual absl::Status Finalize(std::span<const FinalizeTask> tasks) = 0;
  virtual absl::Status Pack(std::span<const PackTask> tasks) = 0;

  // The device's computation of encoders' rows, made at the first call. Thread-safe.
  // FAILED_PRECONDITION: the memory is the host's, or the library of products is missing.
  virtual absl::StatusOr<RowMath*> row_math() = 0;
};

enum class DeviceKind { kCpu, kCuda };

enum class AttentionKernel {
  kAuto,    // cuDNN if it is built in, applies and was faster here; else native
  kCudnn,   // cuDNN wherever it applies; an error if it is not built in
  kNative,  // native kernels
};

struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 0;  // kCpu; 0: all that the process may use

  // kCpu: the kernels' instruction set, as in DeviceInfo.kernel; empty: the machine's best.
  // "portable", "ssse3", "sse4", "avx2", "avx512", "avx512-bf16", "amx-bf16" on x86, "neon" on Arm.
  // Slow ones for tests anywhere, "bf16-emulated" and "amx-bf16-emulated", compute bfloat16 as
  // avx512-bf16 and amx-bf16 do, the latter to the bit.
  std::string instructions;

  int ordinal = 0;               // kCuda: a GPU, of those that the process sees
  double memory_fraction = 0.9;  // kCuda: share of the GPU's memory for buffers, in (0, 1]
  AttentionKernel attention_kernel = AttentionKernel::kAuto;  // kCuda
  // kCuda: use of kernels of compute capability 9.0; false: those of 8.0.
  bool warpgroup_products = true;
  // kCuda: use of 9.0's kernels with a producer (adr/0008), on tasks with tensor maps.
  bool producer = true;
  // kCuda: the longest time of a native launch, > 0. Keys that take one block of threads longer are
  // cut into successive launches. Tests set less, so that any GPU cuts.
  double launch_seconds = 0.02;
};

// Returns OK, or FAILED_PRECONDITION with the reason: "no CUDA device 0: ...".
absl::Status FindCudaDevice(int ordinal);

// INVALID_ARGUMENT with the field: threads, or instructions that this machine does not run. kCuda:
// errors of FindCudaDevice.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options);

}  // namespace hilbert_ring
