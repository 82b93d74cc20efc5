// The emulated GPU's runtime: host memory that begins as NaN. Streams work at once, in the caller's
// thread.
//
// EMULATED_GPU_DEFECT selects a defect:
// - "nopin": the runtime refuses to pin host memory that it did not allocate.
// - "hang": kernels never end.
// - "fault": kernels fault, and every later call fails.
// - "lie": kernels do no work and report success.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

struct EmulatedStream {};
struct EmulatedEvent {};
struct EmulatedPool {};

namespace {

constexpr size_t kMemoryBytes = size_t{4} << 30;
constexpr size_t kAlignment = 256;

constexpr int kBlockSharedBytes = 227 << 10;  // of compute capability 9.0

// Slow enough to cut tests' work into launches.
constexpr int kClockKilohertz = 20'000;

std::atomic<bool> launched = false;  // a kernel with the defect

const std::string& WhatIsWrong() {
  static const std::string wrong = [] {
    const char* set = std::getenv("EMULATED_GPU_DEFECT");
    return std::string(set == nullptr ? "" : set);
  }();
  return wrong;
}

// The result of a call that waits for the GPU, or that a GPU refuses after a fault.
cudaError_t Await() {
  if (!launched) return cudaSuccess;
  while (WhatIsWrong() == "hang") pause();
  return WhatIsWrong() == "fault" ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t Take(void** data, size_t bytes) {
  *data = bytes > kMemoryBytes
              ? nullptr
              : std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);
  return cudaSuccess;
}

}  // namespace

bool EmulatedKernelRuns() {
  if (WhatIsWrong().empty() || WhatIsWrong() == "nopin") return true;
  launched = true;
  return false;
}

const char* cudaGetErrorName(cudaError_t error) {
  if (error == cudaErrorIllegalAddress) return "cudaErrorIllegalAddress";
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorIllegalAddress) return "an illegal memory access was encountered";
  return error == cudaErrorMemoryAllocation ? "out of memory" : "failed";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {.name = "Emulated GPU",
                 .major = 9,
                 .minor = 0,
                 .multiProcessorCount = 2,
                 .totalGlobalMem = kMemoryBytes};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = kClockKilohertz;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return Await(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return Await(); }

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = new EmulatedPool;
  return cudaSuccess;
}
// The heap owns an emulated pool's memory.
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t, cudaStream_t) {
  const cudaError_t error = Await();
  return error == cudaSuccess ? Take(data, bytes) : error;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return cudaFree(data); }
cudaError_t cudaMalloc(void** data, size_t bytes) { return Take(data, bytes); }
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) {
  return WhatIsWrong() == "nopin" ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) { return Take(data, bytes); }
cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  return value <= kBlockSharedBytes ? cudaSuccess : cudaErrorInvalidValue;
}
