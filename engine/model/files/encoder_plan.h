// The plan of an encoder's job, a pure function of config and sizes: the attention of every layer,
// the tile of each row, and the memory of each rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/pooling.h"
#include "engine/model/files/slide_rows.h"
#include "engine/plan/plan.h"

namespace hilbert_ring {

struct EncoderPlan {
  EncoderConfig config;
  Plan attention;  // of one layer, with its steps
  SlideRows rows;
};

// Errors: AttentionOf, MakePlan; CANCELLED soon after `cancelled` (may be null) returns true.
absl::StatusOr<EncoderPlan> MakeEncoderPlan(const EncoderConfig& config, DataType compute,
                                            const std::vector<int64_t>& slide_tiles, int workers,
                                            std::function<bool()> cancelled = nullptr);

absl::StatusOr<EncoderPlan> MakeEncoderPlan(const EncoderConfig& config, DataType compute,
                                            const std::vector<int64_t>& slide_tiles, Shards shards);

// Communicator steps of a job, with one between two layers; 0 if it exchanges nothing.
int64_t StepsOf(const EncoderPlan& plan);

// Even blocks of a rank's rows for its threads; 0 threads: a GPU.
struct RowBlocks {
  RowBlocks(int64_t rows, int threads);

  int64_t rows = 0;   // of the rank
  int64_t block = 0;  // rows of each block except the last
  int64_t count() const { return (rows + block - 1) / block; }
  int64_t Begin(int64_t index) const { return index * block; }
  int64_t Rows(int64_t index) const { return std::min(block, rows - Begin(index)); }
};

// Partial sums of pooling that a rank holds at once.
inline constexpr int64_t kPooledPiecesAtOnce = 64;

// Memory of a rank beside the model's weights.
struct EncoderMemory {
  int64_t attention_bytes = 0;  // shard, accumulators and exchange buffers of all layers
  int64_t residual_bytes = 0;   // float32 [rows, embed_dim]
  int64_t block_bytes = 0;      // of the threads' blocks, so that no [rows, ffn_dim] exists
  int64_t scratch_bytes = 0;    // of the threads' products
  int64_t output_bytes = 0;     // pooled sums; a map's rows and class tokens
  int64_t total() const {
    return attention_bytes + residual_bytes + block_bytes + scratch_bytes + output_bytes;
  }
};

// Float64 sums: each requested state's, kept to the end, the current one, and its pieces.
int64_t PooledBytes(const EncoderPlan& plan, int rank, const EncoderOutputs& outputs);

// The most scratch of a CPU's products of `rows` rows, beside operand and result.
int64_t ProductScratchBytes(const EncoderConfig& config, int64_t rows, DataType products);

// products: operand type (float32 on processors without bfloat16's). threads 0: a GPU.
EncoderMemory MemoryOf(const EncoderPlan& plan, int rank, int threads, DataType products,
                       const EncoderOutputs& outputs);

struct SlideRange {
  int64_t begin = 0, end = 0;
};
SlideRange SlidesOf(const EncoderPlan& plan, int rank);

// Width of a block's row: float32 results and operands of products.
int64_t WidestResult(const EncoderConfig& config);
int64_t WidestOperand(const EncoderConfig& config);

// Floating-point operations of one rank's products over all layers, without attention.
double ProductFlops(const EncoderPlan& plan, int rank);

// The part of ProductFlops that projects tiles.
double ProjectionFlops(const EncoderPlan& plan, int rank);

}  // namespace hilbert_ring
