// An encoder's part of a run (run_work.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/worker/model_store.h"
#include "server/worker/run_work.h"

namespace hilbert_ring::server {

// Of a RunOpen with encode. Errors of ModelCatalog::Open, DecodeEncodeSpec and MakeEncoderPlan.
// threads: of the device that will compute it, which is the store's. The store outlives the run.
absl::StatusOr<std::unique_ptr<RunWork>> MakeEncodeRun(const v1::RunOpen& open, ModelStore& models,
                                                       int threads);

}  // namespace hilbert_ring::server
