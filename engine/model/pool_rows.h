// Sums of a rank's rows, slide by slide.
#pragma once

#include "absl/status/statusor.h"
#include "engine/device/cpu/thread_pool.h"
#include "engine/model/files/encoder_plan.h"
#include "engine/model/files/pooling.h"
#include "engine/model/rank_rows.h"

namespace hilbert_ring {

struct PoolTask {
  const EncoderPlan& plan;
  int rank = 0;
  Pooling pooling = Pooling::kMean;      // or kClass
  FinalNorm norm = FinalNorm::kApplied;  // to each row before it is summed
};

// The sums have the same bits for any number of threads. Errors: RankRows::AddSums.
absl::StatusOr<PooledPart> PoolRows(const PoolTask& task, RankRows& rows, ThreadPool& pool);

}  // namespace hilbert_ring
