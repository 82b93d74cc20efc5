// A device: memory and kernels behind one interface.
//
//   auto device = MakeDevice({.kind = DeviceKind::kCpu, .threads = 2}).value();
//   auto buffer = device->Allocate(bytes).value();        // zero-filled
//   auto figures = device->Attend(tasks, control);        // returns when all tasks are done
//   buffer.reset();                                       // memory back to the system
//
// Calls are synchronous: they return when their results can be read by the same thread. A device is
// used by one thread at a time, except for Allocate, which is thread-safe.
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

struct DeviceInfo {
  std::string name;    // "AMD EPYC, 2 threads"
  std::string kernel;  // the kernel that Attend uses: "cpu/avx2"
  int64_t memory_bytes = 0;
  int threads = 0;
};

// Memory of a device. Aligned to 64 bytes at least, zero when allocated; empty buffers are valid.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

struct AttendControl {
  // Asked between tiles, from any thread; true ends the call with CANCELLED.
  std::function<bool()> cancelled;
  // Told of scores computed since the last call, from any thread, at least once per tile of
  // queries.
  std::function<void(int64_t scores)> progress;
};

struct AttendFigures {
  int64_t scores = 0;  // (query, key, head) scores in tiles that were not wholly masked
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;

  // RESOURCE_EXHAUSTED when the memory is not there.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;

  // CANCELLED when control.cancelled said so: outputs are then undefined. INVALID_ARGUMENT, naming
  // the field, for a task that no kernel takes; nothing is computed then.
  virtual absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                               const AttendControl& control) = 0;

  virtual absl::Status AddZeroKeys(std::span<const ZeroKeysTask> tasks) = 0;
  virtual absl::Status Finalize(std::span<const FinalizeTask> tasks) = 0;
  virtual absl::Status Pack(std::span<const PackTask> tasks) = 0;
};

enum class DeviceKind { kCpu };

struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 0;  // kCpu: 0 means all that the process may use

  // kCpu: the instruction set of the kernels, that of DeviceInfo.kernel; empty means the best of
  // the machine. "portable", "ssse3", "sse4", "avx2", "avx512", "avx512-bf16" on x86, "neon" on
  // Arm, and anywhere "bf16-emulated", a slow one for tests: bfloat16 as avx512-bf16 computes it.
  std::string instructions;
};

// INVALID_ARGUMENT, naming the field, for options out of range.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options);

}  // namespace hilbert_ring
