// Moves rows between host memory and the device: through pinned pieces, or by themselves if the
// host memory is pinned.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring::cuda {

// Thread-safe. Callers make the staging's device current.
class Staging {
 public:
  static absl::StatusOr<std::unique_ptr<Staging>> Make();
  virtual ~Staging() = default;

  // They work as Device's calls.
  virtual absl::Status CopyIn(void* to, const void* from, int64_t bytes) = 0;
  virtual absl::Status CopyRowsIn(const RowsIn& rows) = 0;
  virtual absl::Status CopyOut(void* to, const void* from, int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<HostPin>> Pin(void* memory, int64_t bytes) = 0;

  // Makes later work on the stream (a cudaStream_t) wait for all rows copied in before.
  virtual absl::Status Follow(void* stream) = 0;
};

}  // namespace hilbert_ring::cuda
