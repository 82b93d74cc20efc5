// Streams without end through the client library; rows are made on request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/attend_stream.h"
#include "client/cpp/job_options.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "tests/engine/run_engine.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

// sequence_lengths repeat
JobSpec StreamOf(const JobSpec& job, std::vector<int64_t> sequence_lengths = {});

struct StreamSettings {
  int64_t epoch_tokens = 0;
  int64_t block_rows = 100;
  std::function<void(const v1::Epoch&)> epoch;
  std::function<absl::Status(const client::StreamedRows&)> taken;  // after they were put in place
};

absl::StatusOr<ServiceResult> AttendInStream(const Cluster& cluster, const JobSpec& job,
                                             const JobSpec& stream, const EngineInputs& inputs,
                                             const StreamSettings& settings = {});

absl::StatusOr<v1::Report> StreamConstantRows(const Cluster& cluster, const JobSpec& stream,
                                              int64_t rows, const StreamSettings& settings);

}  // namespace hilbert_ring::testing
