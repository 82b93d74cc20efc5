// An encoder's job as a whole, seen as attention's jobs are: rows of tensors in shards, and what
// each worker takes and does over all layers.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/encoder_plan.h"
#include "engine/model/files/pooling.h"
#include "engine/plan/plan.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

struct EncodeJob {
  EncoderConfig config;
  DataType dtype = DataType::kFloat32;    // of tiles
  DataType compute = DataType::kFloat32;  // or bfloat16
  std::vector<int64_t> slide_tiles;       // of each slide
  EncoderOutputs outputs;
};

// Of a token. States lie in shards where they are not pooled.
RowSizes RowSizesOf(const EncodeJob& job);

// The attention's plan, with the job's rows, and costs that are those of all layers and all that is
// around the attention. threads: of each worker. Memory is that of workers with products of
// `compute`; what others need more is in widened_bytes.
Plan PlanOfJob(const EncodeJob& job, const EncoderPlan& plan, int threads);

}  // namespace hilbert_ring
