// Attention by a library, where it applies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring::cuda {

inline constexpr size_t kMostLibraryTasks = 1024;  // between two calls of Doubts

// Used by one thread at a time.
class LibraryAttention {
 public:
  virtual ~LibraryAttention() = default;
  virtual std::string name() const = 0;  // "cudnn"

  // Starts the task on the stream (a cudaStream_t) and returns the scores that it will have
  // computed, or 0 when the task is not for the library; nothing is done then. At most
  // kMostLibraryTasks are started before Doubts is called.
  virtual absl::StatusOr<int64_t> Attend(const AttentionTask& task, void* stream) = 0;

  // Why Attend returned 0 last, in the library's words where they are its own.
  virtual std::string Refusal() const = 0;

  // Of each task that was started since the last call, in order: whether its results may be other
  // than AttentionTask says, as libraries differ in what they make of scores and values that are
  // not finite or very large. The stream has been waited for.
  virtual std::vector<bool> Doubts() = 0;
};

// Null where our own kernels do everything. FAILED_PRECONDITION for kCudnn where the library is not
// built in, cannot be loaded, or the GPU is older than it needs. compute_capability: 90 of 9.0.
absl::StatusOr<std::unique_ptr<LibraryAttention>> MakeLibraryAttention(AttentionKernel wanted,
                                                                       int compute_capability);

}  // namespace hilbert_ring::cuda
