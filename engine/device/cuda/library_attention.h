// Attention by a library, where it applies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring::cuda {

// Used by one thread at a time.
class LibraryAttention {
 public:
  virtual ~LibraryAttention() = default;
  virtual std::string name() const = 0;  // "cudnn"

  // Starts the task on the stream (a cudaStream_t) and returns the scores that it will have
  // computed, or 0 when the task is not for the library; nothing is done then.
  virtual absl::StatusOr<int64_t> Attend(const AttentionTask& task, void* stream) = 0;
};

// Null where our own kernels do everything. FAILED_PRECONDITION for kCudnn where the library is not
// built in, cannot be loaded, or the GPU is older than it needs. compute_capability: 90 of 9.0.
absl::StatusOr<std::unique_ptr<LibraryAttention>> MakeLibraryAttention(AttentionKernel wanted,
                                                                       int compute_capability);

}  // namespace hilbert_ring::cuda
