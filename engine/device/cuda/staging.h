// Moves rows between pageable host memory and the device through pinned pieces.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring::cuda {

// Thread-safe. The calling thread's current device is the staging's.
class Staging {
 public:
  static absl::StatusOr<std::unique_ptr<Staging>> Make();
  virtual ~Staging() = default;

  // As the calls of Device.
  virtual absl::Status CopyIn(void* to, const void* from, int64_t bytes) = 0;
  virtual absl::Status CopyRowsIn(const RowsIn& rows) = 0;
  virtual absl::Status CopyOut(void* to, const void* from, int64_t bytes) = 0;

  // Makes work that is put on the stream (a cudaStream_t) from now on wait for all that has been
  // copied in.
  virtual absl::Status Follow(void* stream) = 0;
};

}  // namespace hilbert_ring::cuda
