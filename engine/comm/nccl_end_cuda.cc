#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/comm/nccl_end.h"

namespace hilbert_ring {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return absl::StatusCode::kOk;
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return absl::StatusCode::kOk;
    case ncclSystemError:
    case ncclRemoteError:
    case ncclInternalError:  // a rank may get it when a peer has died
      return absl::StatusCode::kUnavailable;
    case ncclInvalidUsage:  // two ranks on one GPU
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status Cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::Status(CodeOf(error), absl::StrCat(call, ": ", cudaGetErrorString(error)));
}

class CudaNcclEnd : public NcclEnd {
 public:
  explicit CudaNcclEnd(int device) : device_(device) {}

  absl::Status Open() {
    RETURN_IF_ERROR(Enter());
    // The exchange has priority: else it waits for the end of compute's launches.
    int least = 0, greatest = 0;
    RETURN_IF_ERROR(Cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                         "cudaDeviceGetStreamPriorityRange"));
    return Cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                "cudaStreamCreateWithPriority");
  }

  ~CudaNcclEnd() override {
    if (!Enter().ok()) return;
    if (staging_.device != nullptr) cudaFree(staging_.device);
    if (staging_.host != nullptr) cudaFreeHost(staging_.host);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::StatusOr<std::string> UniqueId() override {
    ncclUniqueId id;
    RETURN_IF_ERROR(Nccl(ncclGetUniqueId(&id), "ncclGetUniqueId"));
    return std::string(id.internal, sizeof(id.internal));
  }

  absl::StatusOr<NcclStaging> AllocateStaging(int64_t bytes) override {
    RETURN_IF_ERROR(Enter());
    void* host = nullptr;
    absl::Status status = Cuda(cudaMallocHost(&host, bytes), "cudaMallocHost");
    RETURN_IF_ERROR(status);
    staging_.host = static_cast<std::byte*>(host);
    void* device = nullptr;
    status = Cuda(cudaMalloc(&device, bytes), "cudaMalloc");
    RETURN_IF_ERROR(status);
    staging_.device = static_cast<std::byte*>(device);
    return staging_;
  }

  absl::Status Init(const NcclInit& init) override {
    RETURN_IF_ERROR(Enter());
    ncclUniqueId id;
    if (init.id.size() != sizeof(id.internal)) {
      return absl::FailedPreconditionError(absl::StrCat("the ring's NCCL id has ", init.id.size(),
                                                        " bytes, must have ", sizeof(id.internal)));
    }
    std::memcpy(id.internal, init.id.data(), sizeof(id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (init.max_ctas > 0) {
      config.minCTAs = 1;
      config.maxCTAs = init.max_ctas;
    }
    return Nccl(ncclCommInitRankConfig(&comm_, init.size, id, init.rank, &config),
                "ncclCommInitRankConfig");
  }

  absl::StatusOr<bool> Ready() override {
    ncclResult_t state = ncclSuccess;
    absl::Status status = Nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    if (status.ok()) status = Nccl(state, "the ring");
    RETURN_IF_ERROR(status);
    return state == ncclSuccess;
  }

  absl::Status Group(const std::vector<NcclTransfer>& transfers) override {
    RETURN_IF_ERROR(Enter());
    absl::Status status = Nccl(ncclGroupStart(), "ncclGroupStart");
    RETURN_IF_ERROR(status);
    for (const NcclTransfer& transfer : transfers) {
      const bool sends = transfer.direction == NcclTransfer::Direction::kSend;
      const ncclResult_t result =
          sends ? ncclSend(transfer.data, transfer.bytes, ncclUint8, transfer.peer, comm_, stream_)
                : ncclRecv(transfer.data, transfer.bytes, ncclUint8, transfer.peer, comm_, stream_);
      if (status.ok()) status = Nccl(result, sends ? "ncclSend" : "ncclRecv");
    }
    // A begun group always ends: the thread could not begin another.
    const absl::Status ended = Nccl(ncclGroupEnd(), "ncclGroupEnd");
    return status.ok() ? ended : status;
  }

  absl::Status CopyToDevice(int64_t offset, int64_t bytes) override {
    RETURN_IF_ERROR(Enter());
    return Cuda(cudaMemcpyAsync(staging_.device + offset, staging_.host + offset, bytes,
                                cudaMemcpyHostToDevice, stream_),
                "cudaMemcpyAsync");
  }

  absl::Status CopyToHost(int64_t offset, int64_t bytes) override {
    RETURN_IF_ERROR(Enter());
    return Cuda(cudaMemcpyAsync(staging_.host + offset, staging_.device + offset, bytes,
                                cudaMemcpyDeviceToHost, stream_),
                "cudaMemcpyAsync");
  }

  absl::StatusOr<bool> Idle() override {
    RETURN_IF_ERROR(Enter());
    const cudaError_t error = cudaStreamQuery(stream_);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // clears the error for later calls
      return false;
    }
    RETURN_IF_ERROR(Cuda(error, "cudaStreamQuery"));
    return true;
  }

  absl::Status Finalize() override {
    RETURN_IF_ERROR(Enter());
    return Nccl(ncclCommFinalize(comm_), "ncclCommFinalize");
  }

  void Destroy() override {
    if (comm_ != nullptr && Enter().ok()) ncclCommDestroy(std::exchange(comm_, nullptr));
  }

  void Abort() override {
    if (comm_ != nullptr && Enter().ok()) ncclCommAbort(std::exchange(comm_, nullptr));
  }

 private:
  absl::Status Enter() const { return Cuda(cudaSetDevice(device_), "cudaSetDevice"); }

  absl::Status Nccl(ncclResult_t result, const char* call) const {
    const absl::StatusCode code = CodeOf(result);
    if (code == absl::StatusCode::kOk) return absl::OkStatus();
    const char* detail = ncclGetLastError(comm_);
    return absl::Status(code, absl::StrCat(call, ": ", ncclGetErrorString(result), " (",
                                           detail == nullptr ? "" : detail, ")"));
  }

  const int device_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  NcclStaging staging_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclEnd>> MakeNcclEnd(int cuda_device) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ",
                     error == cudaSuccess ? "the driver lists 0" : cudaGetErrorString(error)));
  }
  if (cuda_device < 0 || cuda_device >= devices) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no CUDA device: cuda_device is ", cuda_device, ", must be less than ", devices));
  }
  auto end = std::make_unique<CudaNcclEnd>(cuda_device);
  RETURN_IF_ERROR(end->Open());
  return end;
}

}  // namespace hilbert_ring
