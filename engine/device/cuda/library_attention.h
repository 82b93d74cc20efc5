// Attention by a library.
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

  // Starts the task on the stream (a cudaStream_t). Returns the number of its scores, or 0 and
  // starts nothing if the library does not take it. Call Doubts after at most kMostLibraryTasks
  // tasks.
  virtual absl::StatusOr<int64_t> Attend(const AttentionTask& task, void* stream) = 0;

  // The reason that Attend last returned 0, in the library's own words if it gave any.
  virtual std::string Refusal() const = 0;

  // Returns for each task since the last call, in order, whether its results may differ from
  // AttentionTask's: libraries differ in huge, infinite and NaN numbers. Wait for the stream first.
  virtual std::vector<bool> Doubts() = 0;
};

// Returns null if native kernels do everything. FAILED_PRECONDITION for kCudnn: the library is not
// built in, cannot be loaded, or needs a newer GPU. compute_capability: 90 of 9.0.
absl::StatusOr<std::unique_ptr<LibraryAttention>> MakeLibraryAttention(AttentionKernel wanted,
                                                                       int compute_capability);

}  // namespace hilbert_ring::cuda
