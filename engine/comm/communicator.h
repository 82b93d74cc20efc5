// Point-to-point exchange among the ranks of one ring.
//
//   CommStep step{.number = 1};
//   step.sends.push_back({.peer = 1, .data = block, .bytes = n});
//   step.receives.push_back({.peer = 2, .data = buffer, .bytes = m});
//   communicator->Post(step);          // starts; compute goes on
//   communicator->Wait(deadline);      // all of the step's transfers are done
//
// A step is one list of transfers, because a transport (NCCL) may have to group them. Transfers
// between two peers match in list order. A receive fails if its sender differs in step, order or
// size; the sender may not notice. At most one step is posted at a time. All ranks number steps
// equally, and numbers only rise. Ranks may skip steps. Zero bytes are a valid transfer. A rank is
// never its own peer.
//
// Transfers with a rank that breaks, is aborted or is destroyed fail. A network may lose this news
// in mid-transfer, until the deadline: a caller that learns of it calls Abort.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring {

struct Send {
  int peer = 0;
  const void* data = nullptr;
  int64_t bytes = 0;
};

struct Receive {
  int peer = 0;
  void* data = nullptr;
  int64_t bytes = 0;
};

struct CommStep {
  int64_t number = 0;  // >= 0
  std::vector<Send> sends;
  std::vector<Receive> receives;
};

using Deadline = std::chrono::steady_clock::time_point;

// Payload of an error after which transfers may write to the step's memory until the process ends.
inline constexpr char kMemoryInUse[] = "hilbert-ring/memory-in-use";

// Thread-compatible, except that any thread may call Abort.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // "gloo" or "nccl".
  virtual std::string name() const = 0;

  // Starts the step's transfers. Their memory stays valid until Wait returns or the communicator is
  // destroyed. To leave a step early, call Abort, then Wait. FAILED_PRECONDITION: a step is posted
  // already, and stays posted. Other errors are as in Wait, and leave no memory in use.
  virtual absl::Status Post(const CommStep& step) = 0;

  // Waits for the posted step, if any. DEADLINE_EXCEEDED, UNAVAILABLE (a peer is gone), ABORTED and
  // DATA_LOSS (rows differ from those sent) name the peer. After an error every later call fails
  // with the same error: form a new generation.
  virtual absl::Status Wait(Deadline deadline) = 0;

  // Makes the wait in progress and every later call return ABORTED with `reason`, within 100 ms
  // unless a GPU hangs. The first reason stays.
  virtual void Abort(const std::string& reason) = 0;
};

// Rendezvous of a communicator's ranks: takes a rank's blob, returns all by rank, by the deadline.
using AllGather =
    std::function<absl::StatusOr<std::vector<std::string>>(std::string own, Deadline deadline)>;

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string host;   // address, host name or interface of this machine that peers can reach
  std::string ring;   // unique name of ring and generation; ranks of different rings do not connect
  Deadline deadline;  // for connecting
};

// Connects a full mesh over TCP, within the deadline and 10 s if a peer vanishes. Calls all_gather
// once, except for a ring of one. Errors are those of Communicator::Wait and all_gather,
// INVALID_ARGUMENT of the host, and FAILED_PRECONDITION if ranks are of different rings.
//
// The process must ignore SIGPIPE: Gloo writes to connections that peers may have closed.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const GlooOptions& options,
                                                                   const AllGather& all_gather);

struct NcclOptions {
  int rank = 0;
  int size = 1;
  int cuda_device = 0;  // ordinal
  std::string ring;     // as in GlooOptions
  Deadline deadline;    // for connecting
  int max_ctas = 0;     // the GPU's CTAs for one exchange, lost to compute; 0: NCCL's choice
  std::function<bool()> cancelled;  // polled while connecting; may be null
};

// Joins a ring of GPUs, one process a rank. The memory of its steps is the GPU's; work that writes
// it ends before Post. Blocks until connected. Calls all_gather once, except for a ring of one.
// Errors are those of Communicator::Wait and all_gather, CANCELLED, and FAILED_PRECONDITION: ranks
// of different rings, two ranks on one GPU (see NCCL_HOSTID), or "no CUDA device ...".
//
// NCCL matches transfers by order alone. Each step therefore carries to each peer its number and
// sizes. Ends that disagree get DATA_LOSS, or wait to the deadline like NCCL. Errors name all peers
// of the step. INTERNAL with kMemoryInUse: a GPU that hangs may still use the memory.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options,
                                                                   const AllGather& all_gather);

}  // namespace hilbert_ring
