// The transport of this worker's rings. All workers of a ring have the same, known by its name.
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
  std::string ring;  // unique, of ring and generation
  Deadline deadline;
  std::function<bool()> cancelled;
};

struct RingTransport {
  std::string name;  // "gloo", "nccl"
  // Blocks until the ring stands. Thread-safe.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const RingRequest& request,
                                                              const AllGather& all_gather)>
      join;
};

struct RingTransportOptions {
  std::string host;                // the address for peers
  std::optional<int> cuda_device;  // ordinal; empty: the CPU computes
  int max_ctas = 0;                // of NcclOptions
};

RingTransport MakeRingTransport(const RingTransportOptions& options);

}  // namespace hilbert_ring::server
