// The coordinates of a job's tokens, collected from COORDS chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class Coordinates {
 public:
  // Memory that coordinates and the order made of them take at their most.
  static int64_t MemoryBytes(const JobSpec& spec);

  // Of these, what is left once the order is made.
  static int64_t OrderBytes(const JobSpec& spec);

  // The spec's ordering has coordinates.
  explicit Coordinates(const JobSpec& spec);

  // Places the rows of a chunk that the ledger accepted.
  void Place(const v1::Chunk& chunk, const wire::Payload& payload);

  // [tokens, axes], row-major.
  const std::vector<int64_t>& values() const { return values_; }

 private:
  int64_t axes_;
  std::vector<int64_t> values_;
};

}  // namespace hilbert_ring::server
