// The RunWork of an encoder's job.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/worker/model_store.h"
#include "server/worker/run_work.h"

namespace hilbert_ring::server {

// threads: of the device. The store outlives the run. Errors: those of ModelCatalog::Open,
// DecodeEncodeSpec and MakeEncoderPlan.
absl::StatusOr<std::unique_ptr<RunWork>> MakeEncodeRun(const v1::RunOpen& open, ModelStore& models,
                                                       int threads);

}  // namespace hilbert_ring::server
