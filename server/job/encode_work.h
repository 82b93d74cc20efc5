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
#include "server/models/model_reader.h"
#include "server/process/file_steps.h"

namespace hilbert_ring::server {

// Plans an encoder's job over so many workers of so many threads. job: with its checked layer.
Planner EncodePlanner(const EncodeJob& job, int threads, std::function<bool()> cancelled);

// The layer whose input the workers of a job keep where so many rows of it are checked; 0: none.
// Where a job has several slides, another draw of rows may take another way.
int64_t CheckedLayerOf(const EncodeJob& job, int check_rows);

// threads: of the worker that has most. Errors of ModelCatalog::Open and DecodeEncodeSpec;
// OUT_OF_RANGE (INVALID_SPEC): a row of results does not go into a chunk, or pooled results take
// more than max_result_bytes here.
struct EncodeWorkOptions {
  SpecLimits limits;
  int threads = 1;
  int64_t max_result_bytes = int64_t{1} << 30;
  int check_rows = 0;  // that are computed again
  // By which that reads the model.
  FileSteps steps = FileSteps();
  ModelReader::Limits reading;
};
absl::StatusOr<std::unique_ptr<JobWork>> MakeEncodeWork(const v1::EncodeSpec& spec,
                                                        ModelCatalog& models,
                                                        const EncodeWorkOptions& options);

}  // namespace hilbert_ring::server
