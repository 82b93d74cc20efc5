// RawCall makes one Attend or AttendStream call message by message, so that tests can also send
// wrong messages.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/engine/run_engine.h"

namespace hilbert_ring::testing {

// Returns the chunk of rows first .. first + rows - 1. `data` has all rows of the tensor.
v1::Chunk MakeChunk(v1::Tensor tensor, const std::string& data, int64_t row_bytes, int64_t first,
                    int64_t rows);

struct ServiceResult {
  EngineResult result;  // out and lse; neither plan nor figures
  v1::Report report;
};

class RawCall {
 public:
  enum class Method { kAttend, kAttendStream };

  RawCall(v1::AttentionService::Stub& stub, std::chrono::milliseconds limit,
          Method method = Method::kAttend);
  ~RawCall();  // cancels a call that has not ended

  bool Open(const JobSpec& spec, bool want_lse = true);
  bool Write(const v1::AttendRequest& request);
  bool Send(const v1::Chunk& chunk);

  bool AwaitAdmitted();

  bool Read(v1::AttendResponse* response);
  void WritesDone();
  void Cancel();

  absl::Status Finish();

  // Returns the service's retry-after, if any. Valid after Finish.
  std::optional<int> retry_after_ms() const;

  absl::StatusOr<ServiceResult> Collect(const JobSpec& spec);

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> stream_;
  bool finished_ = false;
};

std::map<v1::Tensor, std::string> EncodeTensors(const JobSpec& spec, const EngineInputs& inputs);

// Runs a whole job. Sends chunks of `chunk_rows` rows: coordinates first, then the rest, each
// shuffled by `seed`.
absl::StatusOr<ServiceResult> AttendRaw(v1::AttentionService::Stub& stub, const JobSpec& spec,
                                        const EngineInputs& inputs, int64_t chunk_rows,
                                        uint64_t seed);

}  // namespace hilbert_ring::testing
