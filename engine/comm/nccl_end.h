// A rank's end of a ring of NCCL, with a CUDA stream of its own.
//
//   auto end = MakeNcclEnd(0);                       // on GPU 0
//   end->Init({.rank = 0, .size = 2, .id = id});     // then Ready until it is true
//   end->Group(transfers);                           // then Ready, then Idle until it is true
//   end->Abort();                                    // or Finalize, Ready, Destroy
//
// Tests replace it, so that the communicator's logic runs without a GPU. Codes of NCCL and CUDA
// become: UNAVAILABLE when the system or a peer failed, FAILED_PRECONDITION without such a GPU or
// when two ranks share it, RESOURCE_EXHAUSTED without GPU memory, INTERNAL for the rest.
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
  std::string id;    // rank 0's UniqueId
  int max_ctas = 0;  // 0: NCCL's choice
};

struct NcclTransfer {
  enum class Direction { kSend, kReceive };

  Direction direction = Direction::kSend;
  int peer = 0;
  void* data = nullptr;  // device memory; a send only reads it
  int64_t bytes = 0;     // > 0
};

struct NcclStaging {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
};

// Any threads call, one at a time. All calls except Abort and Destroy return at once.
class NcclEnd {
 public:
  // After Init, call Abort or Destroy before the destructor.
  virtual ~NcclEnd() = default;

  virtual absl::StatusOr<std::string> UniqueId() = 0;
  virtual absl::StatusOr<NcclStaging> AllocateStaging(int64_t bytes) = 0;  // once

  // Starts to join the ring. Until Ready returns true, only Abort may be called.
  virtual absl::Status Init(const NcclInit& init) = 0;

  // Returns whether NCCL has carried out the last call, or its asynchronous error.
  virtual absl::StatusOr<bool> Ready() = 0;

  // Put on the stream: a group of transfers (matched with the peers' by order alone), and copies of
  // staging memory. After Group, Ready must return true before another call.
  virtual absl::Status Group(const std::vector<NcclTransfer>& transfers) = 0;
  virtual absl::Status CopyToDevice(int64_t offset, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(int64_t offset, int64_t bytes) = 0;

  // Returns whether all work on the stream is done.
  virtual absl::StatusOr<bool> Idle() = 0;

  // The orderly end, with peers that take part: Finalize, then Ready, then Destroy.
  virtual absl::Status Finalize() = 0;
  virtual void Destroy() = 0;

  // The other end, at any time: work on the stream ends soon, done or not. May take unlimited time.
  virtual void Abort() = 0;
};

// FAILED_PRECONDITION without a GPU or NCCL: "no CUDA device ...".
absl::StatusOr<std::unique_ptr<NcclEnd>> MakeNcclEnd(int cuda_device);

}  // namespace hilbert_ring
