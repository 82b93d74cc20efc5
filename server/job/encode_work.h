// An encoder's job, as the course of a job knows it (job_work.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/files/encode_job.h"
#include "engine/model/files/encoder_folder.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_work.h"
#include "server/models/model_catalog.h"

namespace hilbert_ring::server {

// Plans an encoder's job over so many workers of so many threads.
Planner EncodePlanner(const EncodeJob& job, int threads, std::function<bool()> cancelled);

// threads: of the worker that has most. Errors of ModelCatalog::Open and DecodeEncodeSpec;
// OUT_OF_RANGE (INVALID_SPEC): a row of results does not go into a chunk, or pooled results take
// more than max_result_bytes here.
struct EncodeWorkOptions {
  SpecLimits limits;
  int threads = 1;
  int64_t max_result_bytes = int64_t{1} << 30;
  int check_rows = 0;  // of attention's jobs: the report says that none of this one was
};
absl::StatusOr<std::unique_ptr<JobWork>> MakeEncodeWork(const v1::EncodeSpec& spec,
                                                        ModelCatalog& models,
                                                        const EncodeWorkOptions& options);

}  // namespace hilbert_ring::server
