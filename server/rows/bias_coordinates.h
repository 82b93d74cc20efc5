// The coordinates of a job's biases, which the coordinator keeps until the job's end: every
// execution sends each worker those of its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class BiasCoordinates {
 public:
  static int64_t MemoryBytes(const JobSpec& spec);  // 0 without coordinates

  explicit BiasCoordinates(const JobSpec& spec);

  // BAD_COORDINATES.
  absl::Status Place(const v1::Chunk& chunk, const wire::Payload& payload);

  const std::vector<float>& values() const { return values_; }  // [key tokens, axes]

 private:
  int axes_;
  std::vector<float> values_;
};

}  // namespace hilbert_ring::server
