// Owners of CUDA's resources, and statuses of its codes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::cuda {

// Turns CUDA's codes into statuses, at this place alone. what: the attempted action.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return absl::FailedPreconditionError(message);
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

template <typename Handle, cudaError_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using MemoryPool = Owned<cudaMemPool_t, cudaMemPoolDestroy>;
using PinnedMemory = Owned<void*, cudaFreeHost>;

inline absl::Status MakeStream(Stream& stream) {
  cudaStream_t made = nullptr;
  absl::Status status =
      CudaStatus(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
  if (status.ok()) stream = Stream(made);
  return status;
}

inline absl::Status MakeEvent(Event& event) {
  cudaEvent_t made = nullptr;
  absl::Status status =
      CudaStatus(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "making an event");
  if (status.ok()) event = Event(made);
  return status;
}

inline absl::Status MakePinned(PinnedMemory& memory, int64_t bytes) {
  void* made = nullptr;
  absl::Status status =
      CudaStatus(cudaHostAlloc(&made, static_cast<size_t>(bytes), cudaHostAllocDefault),
                 absl::StrCat("pinning ", bytes, " bytes"));
  if (status.ok()) memory = PinnedMemory(made);
  return status;
}

}  // namespace hilbert_ring::cuda
