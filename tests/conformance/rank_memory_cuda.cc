#include <cuda_runtime_api.h>

#include "tests/conformance/rank_memory.h"

namespace hilbert_ring::testing {
namespace {

absl::Status Checked(cudaError_t error) {
  return error == cudaSuccess ? absl::OkStatus() : absl::InternalError(cudaGetErrorString(error));
}

class CudaMemory : public RankMemory {
 public:
  CudaMemory(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  ~CudaMemory() override { cudaFree(data_); }

  void* data() override { return data_; }
  absl::Status Write(const Bytes& bytes) override {
    // cudaMemcpy alone does not wait for the default stream.
    absl::Status copied = Checked(cudaMemcpy(data_, bytes.data(), bytes_, cudaMemcpyHostToDevice));
    return copied.ok() ? Checked(cudaDeviceSynchronize()) : copied;
  }
  absl::StatusOr<Bytes> Read() override {
    Bytes bytes(bytes_);
    absl::Status copied = Checked(cudaMemcpy(bytes.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    if (!copied.ok()) return copied;
    return bytes;
  }

 private:
  void* const data_;
  const int64_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankMemory>> MakeCudaMemory(int64_t bytes) {
  void* data = nullptr;
  if (absl::Status status = Checked(cudaSetDevice(0)); !status.ok()) return status;
  if (absl::Status status = Checked(cudaMalloc(&data, bytes)); !status.ok()) return status;
  return std::make_unique<CudaMemory>(data, bytes);
}

}  // namespace hilbert_ring::testing
