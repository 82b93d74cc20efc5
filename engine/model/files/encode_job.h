// An encoder's job in the terms of attention's jobs: rows of tensors in shards, and the costs of
// each worker over all layers.
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

// Sizes of a token's rows. States lie in shards unless they are pooled.
RowSizes RowSizesOf(const EncodeJob& job);

// The attention's plan with rows and costs of the whole job. threads: of each worker. Memory
// assumes workers with products of `compute`; widened_bytes is the surplus of others.
Plan PlanOfJob(const EncodeJob& job, const EncoderPlan& plan, int threads);

}  // namespace hilbert_ring
