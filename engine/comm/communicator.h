// Point-to-point exchange among the ranks of one ring.
//
//   CommStep step{.number = 1};
//   step.sends.push_back({.peer = 1, .data = block, .bytes = n});
//   step.receives.push_back({.peer = 2, .data = buffer, .bytes = m});
//   communicator->Post(step);          // starts; compute goes on
//   communicator->Wait(deadline);      // all of the step's transfers are done
//
// A step is one list of transfers, so that a transport that must group them (NCCL) cannot be handed
// half of one. Between two peers transfers match in the order in which both list them; a receive
// whose other end does not agree on step, order and size fails, its sender may not notice. At most
// one step is posted at a time; steps are numbered alike by all ranks and only ever rise. A rank
// with nothing to do in a step may skip it. Zero bytes are a valid transfer. A peer is never
// oneself.
//
// A rank that breaks, is aborted or destroyed is gone for its peers: what they exchange with it
// fails. Such news may be lost in the middle of a transfer over a network, where only the deadline
// is certain; whoever knows better calls Abort.
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

// Payload of an error after which memory of the posted step may still be written to: it must not be
// freed before the process ends.
inline constexpr char kMemoryInUse[] = "hilbert-ring/memory-in-use";

// Used by one thread at a time, except for Abort, which any thread may call.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // "gloo", "nccl".
  virtual std::string name() const = 0;

  // Starts the step's transfers; their memory must stay valid until Wait returns, with an error or
  // without, or the communicator is destroyed. To leave a posted step early: Abort, then Wait.
  // FAILED_PRECONDITION: a step is posted already, which changes nothing. All other errors are as
  // in Wait, and no memory is in use after them.
  virtual absl::Status Post(const CommStep& step) = 0;

  // Waits for the posted step; OK at once when none is posted. DEADLINE_EXCEEDED, UNAVAILABLE (a
  // peer is gone), ABORTED, and DATA_LOSS (what arrived is not what was sent) name the peer; after
  // an error the communicator is broken, and every later call fails with the same one: form a new
  // generation.
  virtual absl::Status Wait(Deadline deadline) = 0;

  // Makes the wait in progress and every later call return ABORTED with `reason`, within 100 ms
  // unless a GPU hangs. The first reason stays.
  virtual void Abort(const std::string& reason) = 0;
};

// Rendezvous of the ranks that form a communicator: gives one's own blob, returns the blobs of all
// by rank. May block until the deadline.
using AllGather =
    std::function<absl::StatusOr<std::vector<std::string>>(std::string own, Deadline deadline)>;

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string host;   // address, host name or interface of this machine that peers can reach
  std::string ring;   // unique name of ring and generation; ranks of different ones do not connect
  Deadline deadline;  // for connecting
};

// Connects a full mesh over TCP. Blocks until connected; a peer that vanishes meanwhile is noticed
// within the deadline and 10 s. all_gather is called once, not at all for a ring of one. Errors as
// in Communicator::Wait, all_gather's, INVALID_ARGUMENT of the host, and FAILED_PRECONDITION
// when the ranks are not of one ring.
//
// A process that uses it must ignore SIGPIPE: Gloo writes to connections that peers may have
// closed.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const GlooOptions& options,
                                                                   const AllGather& all_gather);

struct NcclOptions {
  int rank = 0;
  int size = 1;
  int cuda_device = 0;  // ordinal
  std::string ring;     // as in GlooOptions
  Deadline deadline;    // for connecting
  int max_ctas = 0;  // of the GPU's for one exchange, which compute goes without; 0: NCCL's choice
  std::function<bool()> cancelled;  // asked while connecting; may be null
};

// Joins a ring of GPUs, one process a rank. The memory of its steps is the GPU's, written before
// Post and not by work that is still queued. Blocks until connected; all_gather is called once, not
// at all for a ring of one. Errors as in Communicator::Wait, all_gather's, CANCELLED,
// FAILED_PRECONDITION when the ranks are not of one ring, when two are on one GPU (see
// NCCL_HOSTID), and "no CUDA device: ..." without a GPU or in a build without NCCL.
//
// NCCL matches by order alone. So each step carries, to each peer, the step's number and the sizes
// of its transfers; ends that disagree get DATA_LOSS, or wait to the deadline where NCCL itself
// waits for the rest. Errors name all peers of the step. INTERNAL with kMemoryInUse: a GPU that
// hangs may still use the step's memory.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options,
                                                                   const AllGather& all_gather);

}  // namespace hilbert_ring
