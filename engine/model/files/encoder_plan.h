// The plan of an encoder's job: one plan of attention that serves every layer, which row is which
// tile, and what a rank takes in memory. A pure function of config and sizes.
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
  Plan attention;  // of one layer; its steps are those of one layer too
  SlideRows rows;
};

// slide_tiles: of each slide. Errors of AttentionOf and MakePlan.
// CANCELLED soon after `cancelled`, which may be null, has said so.
absl::StatusOr<EncoderPlan> MakeEncoderPlan(const EncoderConfig& config, DataType compute,
                                            const std::vector<int64_t>& slide_tiles, int workers,
                                            std::function<bool()> cancelled = nullptr);

// The plan for given shards.
absl::StatusOr<EncoderPlan> MakeEncoderPlan(const EncoderConfig& config, DataType compute,
                                            const std::vector<int64_t>& slide_tiles, Shards shards);

// Steps of the communicator that a job takes, with one between two layers; 0 where it exchanges
// nothing.
int64_t StepsOf(const EncoderPlan& plan);

// How a rank's rows are cut into blocks that its threads take, as many for each; 0 threads: a GPU.
struct RowBlocks {
  RowBlocks(int64_t rows, int threads);

  int64_t rows = 0;   // of the rank
  int64_t block = 0;  // rows of a block, but for the last
  int64_t count() const { return (rows + block - 1) / block; }
  int64_t Begin(int64_t index) const { return index * block; }
  int64_t Rows(int64_t index) const { return std::min(block, rows - Begin(index)); }
};

// Pieces of a rank's rows whose sums are held at once while slides are pooled.
inline constexpr int64_t kPooledPiecesAtOnce = 64;

// What a rank takes beside the model's weights.
struct EncoderMemory {
  int64_t attention_bytes = 0;  // the shard, accumulators and exchange buffers, for all layers
  int64_t residual_bytes = 0;   // float32 [rows, embed_dim]
  int64_t block_bytes = 0;      // of the threads' blocks: so no [rows, ffn_dim] exists
  int64_t scratch_bytes = 0;    // of the threads' products
  // Float64 sums of the rank's slides, of each wanted state and once more; a map's rows and class
  // tokens.
  int64_t output_bytes = 0;
  int64_t total() const {
    return attention_bytes + residual_bytes + block_bytes + scratch_bytes + output_bytes;
  }
};

// Of a rank's pooled sums: each wanted state's, as whoever takes them keeps them until all layers
// are computed, those that are summed, and those of the pieces that are summed at once.
int64_t PooledBytes(const EncoderPlan& plan, int rank, const EncoderOutputs& outputs);

// What the products of a block of so many rows take beside operand and result, at most, on a CPU.
// products: as below.
int64_t ProductScratchBytes(const EncoderConfig& config, int64_t rows, DataType products);

// products: the type that products take their numbers in. It is float32 also for bfloat16, where
// the processor has no products of it. threads 0: of a GPU (device_block.h).
EncoderMemory MemoryOf(const EncoderPlan& plan, int rank, int threads, DataType products,
                       const EncoderOutputs& outputs);

// Slides that a rank has rows of: [begin, end).
struct SlideRange {
  int64_t begin = 0, end = 0;
};
SlideRange SlidesOf(const EncoderPlan& plan, int rank);

// Floats of a block row between products, and elements of an operand's row.
int64_t WidestResult(const EncoderConfig& config);
int64_t WidestOperand(const EncoderConfig& config);

// Multiplications and additions of one rank's products over all layers, counted as two, without
// attention.
double ProductFlops(const EncoderPlan& plan, int rank);

// Of these, the projection of tiles.
double ProjectionFlops(const EncoderPlan& plan, int rank);

}  // namespace hilbert_ring
