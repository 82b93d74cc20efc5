// Point-to-point exchange among the ranks of one ring.
//
//   CommStep step{.number = 1};
//   step.sends.push_back({.peer = 1, .data = block, .bytes = n});
//   step.receives.push_back({.peer = 2, .data = buffer, .bytes = m});
//   communicator->Post(step);          // starts; compute goes on
//   communicator->Wait(deadline);      // all of the step's transfers are done
//
// A step is one list of transfers, so that a transport that must group them (NCCL) cannot be handed
// half of one. Between two peers transfers match in the order in which both list them. At most one
// step is posted at a time; steps are numbered alike by all ranks and only ever rise. A rank with
// nothing to do in a step may skip it. Zero bytes are a valid transfer. A peer is never oneself.
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

// Used by one thread at a time, except for Abort, which any thread may call.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // "in-process", "gloo".
  virtual std::string name() const = 0;

  // Starts the step's transfers; their memory must stay valid until Wait returns or the communicator
  // is destroyed. INVALID_ARGUMENT: a peer out of range or oneself, negative bytes, a step number
  // that does not rise. FAILED_PRECONDITION: a step is posted already. ABORTED after Abort.
  virtual absl::Status Post(const CommStep& step) = 0;

  // Waits for the posted step; OK at once when none is posted. DEADLINE_EXCEEDED, UNAVAILABLE (a peer is
  // gone) or ABORTED name the peer that was waited for; after an error the communicator is broken, and
  // every later call fails: form a new generation.
  virtual absl::Status Wait(Deadline deadline) = 0;

  // Makes the wait in progress and every later call return ABORTED with `reason`, within 100 ms.
  virtual void Abort(const std::string& reason) = 0;
};

// Rendezvous of the ranks that form a communicator: gives one's own blob, returns the blobs of all by
// rank. May block until the deadline.
using AllGather =
    std::function<absl::StatusOr<std::vector<std::string>>(std::string own, Deadline deadline)>;

// `size` communicators of one in-process ring, by rank: ranks are threads of this process.
std::vector<std::unique_ptr<Communicator>> MakeInProcessRing(int size);

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string host;       // address or name of the local interface that peers can reach
  std::string ring;       // unique name of ring and generation
  Deadline deadline;      // for connecting
};

// Connects a full mesh over TCP. Blocks until connected; errors as in Communicator::Wait.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const GlooOptions& options,
                                                                   const AllGather& all_gather);

}  // namespace hilbert_ring
