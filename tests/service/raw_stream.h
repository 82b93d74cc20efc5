// One AttendStream call by hand, and what the service shows of it.
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

// As PlainSpec makes it, without a count of tokens.
JobSpec StreamSpec(int64_t segment = 64, int64_t dim = 16);

// What streams hold in the coordinator now, in bytes; -1 where it does not say.
int64_t HeldBytes(const Cluster& cluster);

// The same of a page of metrics, which may be older.
int64_t HeldBytes(const absl::StatusOr<std::string>& page);

std::vector<v1::Job> Jobs(v1::AttentionService::Stub& stub);

// Nothing of a stream is left, and the next one runs.
void ExpectFree(const Cluster& cluster);

class RawStream : public RawCall {
 public:
  explicit RawStream(v1::AttentionService::Stub& stub);

  // Opened with epochs of so many tokens.
  bool OpenEpochs(int64_t epoch_tokens, const JobSpec& spec = StreamSpec(),
                  const std::string& job_id = "stream");

  // Rows of zeros of one tensor, and of all three.
  bool SendRows(v1::Tensor tensor, int64_t first, int64_t rows, const JobSpec& spec = StreamSpec());
  bool SendAll(int64_t first, int64_t rows, const JobSpec& spec = StreamSpec());

  // The report of a stream that ends well.
  absl::StatusOr<v1::Report> Report();
};

}  // namespace hilbert_ring::testing
