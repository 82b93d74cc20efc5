// Runs streams through the client library, which requests their rows block by block.
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

// Returns the job's pattern as a stream. Its sequences repeat the given lengths.
JobSpec StreamOf(const JobSpec& job, std::vector<int64_t> sequence_lengths = {});

struct StreamSettings {
  int64_t epoch_tokens = 0;
  int64_t block_rows = 100;
  std::function<void(const v1::Epoch&)> epoch;
  std::function<absl::Status(const client::StreamedRows&)> taken;  // gets each part of the outputs
};

// Sends the job's rows as a stream. Outputs lie by token; NAN: no output came.
absl::StatusOr<ServiceResult> AttendInStream(const Cluster& cluster, const JobSpec& job,
                                             const JobSpec& stream, const EngineInputs& inputs,
                                             const StreamSettings& settings = {});

// Streams `rows` rows of zeros, whose outputs only `settings.taken` gets.
absl::StatusOr<v1::Report> StreamConstantRows(const Cluster& cluster, const JobSpec& stream,
                                              int64_t rows, const StreamSettings& settings);

}  // namespace hilbert_ring::testing
