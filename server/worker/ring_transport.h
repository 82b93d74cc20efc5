// What rings of this worker are made of. A ring's workers all have the same transport; the
// coordinator knows each one's by its name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"

namespace hilbert_ring::server {

struct RingRequest {
  int rank = 0;
  int size = 2;
  std::string ring;  // unique name of ring and generation
  Deadline deadline;
  std::function<bool()> cancelled;
};

struct RingTransport {
  std::string name;  // "gloo", "nccl"
  // Joins the ring; blocks until it stands. Called by several threads, for different rings.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const RingRequest& request,
                                                              const AllGather& all_gather)>
      join;
};

struct RingTransportOptions {
  std::string host;                // that peers reach this worker at
  std::optional<int> cuda_device;  // ordinal of the GPU that computes; none: the processor does
  int max_ctas = 0;                // of NcclOptions
};

// NCCL between GPUs; else Gloo, with a checksum of every block.
RingTransport MakeRingTransport(const RingTransportOptions& options);

}  // namespace hilbert_ring::server
