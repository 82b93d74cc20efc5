// The JobWork of an encoder's job.
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

Planner EncodePlanner(const EncodeJob& job, int threads, std::function<bool()> cancelled);

// Errors of ModelCatalog::Open and DecodeEncodeSpec; OUT_OF_RANGE (INVALID_SPEC): a row of results
// exceeds a chunk, or pooled results exceed max_result_bytes.
struct EncodeWorkOptions {
  SpecLimits limits;
  int threads = 1;  // of the worker with most
  int64_t max_result_bytes = int64_t{1} << 30;
  int check_rows = 0;  // the report notes that an encoder's rows are not checked
};
absl::StatusOr<std::unique_ptr<JobWork>> MakeEncodeWork(const v1::EncodeSpec& spec,
                                                        ModelCatalog& models,
                                                        const EncodeWorkOptions& options);

}  // namespace hilbert_ring::server
