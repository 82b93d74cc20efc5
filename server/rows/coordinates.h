// Coordinates of a job's tokens, collected from COORDS chunks.
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
  static int64_t MemoryBytes(const JobSpec& spec);

  static int64_t OrderBytes(const JobSpec& spec);

  explicit Coordinates(const JobSpec& spec);

  void Place(const v1::Chunk& chunk, const wire::Payload& payload);

  const std::vector<int64_t>& values() const { return values_; }  // [tokens, axes], row-major

 private:
  int64_t axes_;
  std::vector<int64_t> values_;
};

}  // namespace hilbert_ring::server
