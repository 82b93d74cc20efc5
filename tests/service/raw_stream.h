#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

JobSpec StreamSpec(int64_t segment = 64, int64_t dim = 16);

// Bytes that streams hold in the coordinator; -1 without a figure.
int64_t HeldBytes(const Cluster& cluster);

int64_t HeldBytes(const absl::StatusOr<std::string>& page);

std::vector<v1::Job> Jobs(v1::AttentionService::Stub& stub);

void ExpectFree(const Cluster& cluster);

class RawStream : public RawCall {
 public:
  explicit RawStream(v1::AttentionService::Stub& stub);

  bool OpenEpochs(int64_t epoch_tokens, const JobSpec& spec = StreamSpec(),
                  const std::string& job_id = "stream");

  bool SendRows(v1::Tensor tensor, int64_t first, int64_t rows, const JobSpec& spec = StreamSpec());
  bool SendAll(int64_t first, int64_t rows, const JobSpec& spec = StreamSpec());

  absl::StatusOr<v1::Report> Report();
};

}  // namespace hilbert_ring::testing
