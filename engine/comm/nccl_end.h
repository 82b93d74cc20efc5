// What a communicator asks of NCCL and CUDA: one rank's end of one ring, with a stream of its own.
//
//   auto end = MakeNcclEnd(0);                       // on GPU 0
//   end->Init({.rank = 0, .size = 2, .id = id});     // then Ready until it is true
//   end->Group(transfers);                           // then Ready, then Idle until it is true
//   end->Abort();                                    // or Finalize, Ready, Destroy
//
// The communicator's logic knows NCCL through this alone, so that it is tested without a GPU.
// NCCL's and CUDA's codes are mapped here once: UNAVAILABLE when the system or a peer failed,
// FAILED_PRECONDITION when there is no such GPU or two ranks share one, RESOURCE_EXHAUSTED without
// GPU memory, INTERNAL for the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring {

struct NcclInit {
  int rank = 0;
  int size = 2;
  std::string id;    // of UniqueId, rank 0's
  int max_ctas = 0;  // 0: NCCL's choice
};

struct NcclTransfer {
  enum class Direction { kSend, kReceive };

  Direction direction = Direction::kSend;
  int peer = 0;
  void* data = nullptr;  // device memory; only read of a send
  int64_t bytes = 0;     // > 0
};

// Memory of the processor and as much of the GPU, for what both have to see.
struct NcclStaging {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
};

// One call at a time, by any threads. All return at once, but for Abort and Destroy.
class NcclEnd {
 public:
  // After Abort or Destroy, where Init was called.
  virtual ~NcclEnd() = default;

  virtual absl::StatusOr<std::string> UniqueId() = 0;
  virtual absl::StatusOr<NcclStaging> AllocateStaging(int64_t bytes) = 0;  // once

  // Starts to join the ring. Until Ready is true nothing else may be called but Abort.
  virtual absl::Status Init(const NcclInit& init) = 0;

  // Whether NCCL has carried out what was asked last; its asynchronous error.
  virtual absl::StatusOr<bool> Ready() = 0;

  // Puts on the stream: one group of transfers (matched with the peers' by order alone), and copies
  // of staging memory. After Group, Ready must be true before anything else.
  virtual absl::Status Group(const std::vector<NcclTransfer>& transfers) = 0;
  virtual absl::Status CopyToDevice(int64_t offset, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(int64_t offset, int64_t bytes) = 0;

  // Whether all that was put on the stream is done.
  virtual absl::StatusOr<bool> Idle() = 0;

  // The orderly end, with peers that are there: Finalize, then Ready, then Destroy.
  virtual absl::Status Finalize() = 0;
  virtual void Destroy() = 0;

  // The other end, at any time: what is on the stream ends soon, done or not. May take as long as
  // NCCL likes.
  virtual void Abort() = 0;
};

// FAILED_PRECONDITION "no CUDA device: ..." also in a build without NCCL.
absl::StatusOr<std::unique_ptr<NcclEnd>> MakeNcclEnd(int cuda_device);

}  // namespace hilbert_ring
