// Sums of a rank's rows, slide by slide.
#pragma once

#include "engine/device/cpu/thread_pool.h"
#include "engine/model/files/encoder_plan.h"
#include "engine/model/files/layer_norm.h"
#include "engine/model/files/pooling.h"

namespace hilbert_ring {

struct PoolTask {
  const EncoderPlan& plan;
  int rank = 0;
  Pooling pooling = Pooling::kMean;  // or kClass
  const LayerNorm* norm = nullptr;   // of each row before it is summed; null: none
  const float* rows = nullptr;       // [rows of the rank, embed_dim]
};

// The same bits for any number of threads.
PooledPart PoolRows(const PoolTask& task, ThreadPool& pool);

}  // namespace hilbert_ring
