// A device: memory and kernels behind one interface.
//
//   auto device = MakeDevice({.kind = DeviceKind::kCpu, .threads = 2}).value();
//   auto buffer = device->Allocate(bytes).value();        // zero-filled
//   device->CopyIn(buffer->data(), rows, bytes);          // memory need not be the host's
//   auto figures = device->Attend(tasks, control);        // returns when all tasks are done
//   buffer.reset();                                       // memory back to the system
//
// Calls are synchronous: they return when their results can be read by the same thread. A device is
// used by one thread at a time, except for Allocate, CopyIn, CopyRowsIn and CopyOut, which are
// thread-safe: rows come and go while others are computed.
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
  std::string name;          // "AMD EPYC, 2 threads"; "NVIDIA H200, compute capability 9.0"
  std::string kernel;        // that Attend uses: "cpu/avx2", "cuda/native", "cuda/native-sm90"
  int64_t memory_bytes = 0;  // that buffers may take
  int64_t memory_peak_bytes =
      0;            // the most that buffers took at once; 0 where memory is the host's
  int threads = 0;  // of a CPU
};

// Memory of a device. Aligned to 64 bytes at least, zero when allocated; empty buffers are valid.
// The host reads and writes it only where Device::host_memory() says so. The device outlives it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

// Dense rows in host memory, each with its own place among the rows at `to`.
struct RowsIn {
  void* to = nullptr;          // device memory; row r is at to + r * row_bytes
  const void* from = nullptr;  // host memory, [rows.size()] rows one after the other
  std::span<const int64_t> rows;
  int64_t row_bytes = 0;
};

struct AttendControl {
  // Asked between tiles, from any thread; true ends the call with CANCELLED.
  std::function<bool()> cancelled;
  // Told of scores computed since the last call, from any thread, at least once per tile of
  // queries.
  std::function<void(int64_t scores)> progress;
};

struct AttendFigures {
  int64_t scores = 0;          // (query, key, head) scores in tiles that were not wholly masked
  int64_t library_scores = 0;  // of those, by a library's attention and not by our own kernels
  // Why the library took no task of some that are for it, in its words; empty: none was refused.
  std::string library_refusal;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;

  // RESOURCE_EXHAUSTED when the memory is not there.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;

  // Whether buffers are host memory. If not, addresses in them are for tasks and for the calls of
  // this class alone.
  virtual bool host_memory() const = 0;

  // From host memory into a buffer. `from` may be used again when they return; every later call of
  // the device, on a thread that knows of it, works on the new bytes.
  virtual absl::Status CopyIn(void* to, const void* from, int64_t bytes) = 0;
  virtual absl::Status CopyRowsIn(const RowsIn& rows) = 0;

  // From a buffer into host memory, where the bytes are when it returns.
  virtual absl::Status CopyOut(void* to, const void* from, int64_t bytes) = 0;

  // to[i] = value, and to[i] = first + i.
  virtual absl::Status FillFloats(float* to, int64_t count, float value) = 0;
  virtual absl::Status FillSequence(int64_t* to, int64_t count, int64_t first) = 0;

  // CANCELLED when control.cancelled said so: outputs are then undefined. Tasks are of valid specs.
  virtual absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                               const AttendControl& control) = 0;

  virtual absl::Status AddZeroKeys(std::span<const ZeroKeysTask> tasks) = 0;
  virtual absl::Status Finalize(std::span<const FinalizeTask> tasks) = 0;
  virtual absl::Status Pack(std::span<const PackTask> tasks) = 0;

  // What computes encoders' rows in the device's memory, made at the first call; the device's own.
  // Thread-safe. FAILED_PRECONDITION, saying why, where the device has none: its memory is the
  // host's, or its library of products is not there.
  virtual absl::StatusOr<RowMath*> row_math() = 0;
};

enum class DeviceKind { kCpu, kCuda };

// Who computes attention on a GPU.
enum class AttentionKernel {
  kAuto,    // cuDNN where it is built in, applies and was measured faster here; else our own
  kCudnn,   // cuDNN wherever it applies; an error where it is not built in
  kNative,  // our own
};

struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 0;  // kCpu: 0 means all that the process may use

  // kCpu: the instruction set of the kernels, that of DeviceInfo.kernel; empty means the best of
  // the machine. "portable", "ssse3", "sse4", "avx2", "avx512", "avx512-bf16", "amx-bf16" on x86,
  // "neon" on Arm, and anywhere, slow and for tests, "bf16-emulated" and "amx-bf16-emulated":
  // bfloat16 as avx512-bf16 and amx-bf16 compute it, the latter to the bit.
  std::string instructions;

  int ordinal = 0;               // kCuda: which GPU, of those that the process sees
  double memory_fraction = 0.9;  // kCuda: of the GPU's memory that buffers may take, in (0, 1]
  AttentionKernel attention_kernel = AttentionKernel::kAuto;  // kCuda
  // kCuda: whether our kernels of compute capability 9.0 may serve; without them those of 8.0 do.
  bool warpgroup_products = true;
  // kCuda: whether, of those, the ones with a producer may (adr/0008); without them all tasks have
  // the one that serves what tensor maps cannot name.
  bool producer = true;
  // kCuda: what a launch of our kernels should take at most, > 0. Keys that one block of threads
  // would take longer with are cut into launches that follow each other; tests ask for less, so
  // that it happens on any GPU.
  double launch_seconds = 0.02;
};

// Whether this build has CUDA and the process sees the GPU: OK, or FAILED_PRECONDITION with the
// reason, "no CUDA device 0: ...".
absl::Status FindCudaDevice(int ordinal);

// INVALID_ARGUMENT, naming the field: threads out of range, or instructions that this machine does
// not run; kCuda: the errors of FindCudaDevice.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options);

}  // namespace hilbert_ring
