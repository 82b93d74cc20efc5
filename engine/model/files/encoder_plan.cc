#include "engine/model/files/encoder_plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/return_if_error.h"
#include "engine/model/files/device_block.h"
#include "engine/model/files/map_transfers.h"

namespace hilbert_ring {
namespace {

// Longer blocks leave the cache, shorter ones reread the weights. A float32 product of 768 x 3,072
// is as fast with 256 rows as with 512, and a third slower with 128 (two threads of a Zen 5).
constexpr int64_t kMostBlockRows = 256;

// Enough rows for all multiprocessors; 200 MB at the published size. Calculated, not measured.
constexpr int64_t kMostDeviceBlockRows = 8192;

// Scratch of oneDNN 2.6 on a Zen 4: 640 bytes. Bfloat16 results with an inner axis above 512 add
// float32 sums of a panel of 64 columns. AMX was not measured.
constexpr int64_t kProductListsBytes = 1024;
constexpr int64_t kPanelColumns = 64;
constexpr int64_t kLongestUncut = 512;

// Blocks are whole vectors of rows if possible.
constexpr int64_t kBlockStep = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

absl::StatusOr<EncoderPlan> MakeEncoderPlan(const EncoderConfig& config, DataType compute,
                                            const std::vector<int64_t>& slide_tiles, int workers,
                                            std::function<bool()> cancelled) {
  ASSIGN_OR_RETURN(const JobSpec spec, AttentionOf(config, compute, slide_tiles));
  ASSIGN_OR_RETURN(Plan attention, MakePlan(spec, workers, std::move(cancelled)));
  return EncoderPlan{.config = config,
                     .attention = std::move(attention),
                     .rows = SlideRows(slide_tiles, config.class_token ? 1 : 0)};
}

absl::StatusOr<EncoderPlan> MakeEncoderPlan(const EncoderConfig& config, DataType compute,
                                            const std::vector<int64_t>& slide_tiles,
                                            Shards shards) {
  ASSIGN_OR_RETURN(const JobSpec spec, AttentionOf(config, compute, slide_tiles));
  ASSIGN_OR_RETURN(Plan attention, MakePlan(spec, std::move(shards)));
  return EncoderPlan{.config = config,
                     .attention = std::move(attention),
                     .rows = SlideRows(slide_tiles, config.class_token ? 1 : 0)};
}

int64_t StepsOf(const EncoderPlan& plan) {
  const int64_t of_layer = plan.attention.costs.steps;
  return of_layer == 0 ? 0 : plan.config.layers * (of_layer + 1);
}

RowBlocks::RowBlocks(int64_t rows, int threads) : rows(rows) {
  const int64_t most = threads == 0 ? kMostDeviceBlockRows : kMostBlockRows;
  const int64_t takers = std::max(1, threads);
  const int64_t of_taker = std::max<int64_t>(1, CeilDiv(rows, takers * most));
  const int64_t even = CeilDiv(rows, takers * of_taker);
  block = std::max(kBlockStep, CeilDiv(even, kBlockStep) * kBlockStep);
}

int64_t WidestResult(const EncoderConfig& config) {
  return std::max(config.embed_dim, config.ffn_dim);
}

int64_t WidestOperand(const EncoderConfig& config) {
  return std::max(WidestResult(config), config.tile_dim());
}

SlideRange SlidesOf(const EncoderPlan& plan, int rank) {
  const auto& ranges = plan.attention.shards.OfRank(rank);
  if (ranges.empty()) return {};
  return {.begin = plan.rows.SlideOf(ranges.front().begin),
          .end = plan.rows.SlideOf(ranges.back().end - 1) + 1};
}

int64_t PooledBytes(const EncoderPlan& plan, int rank, const EncoderOutputs& outputs) {
  if (outputs.pooling == Pooling::kNone) return 0;
  const SlideRange of_rank = SlidesOf(plan, rank);
  const int64_t sums = (of_rank.end - of_rank.begin) * (std::ssize(outputs.states) + 1);
  const int64_t pieces = std::min(kPooledPiecesAtOnce, plan.attention.shards.Rows(rank));
  return (sums + pieces) * plan.config.embed_dim * static_cast<int64_t>(sizeof(double)) +
         sums * static_cast<int64_t>(sizeof(int64_t));
}

DeviceBlockBytes DeviceBlockBytesOf(const EncoderConfig& config, const RowBlocks& blocks,
                                    DataType products) {
  constexpr int64_t kNumber = 8;  // bytes of an int64 or a double
  const bool positions = config.position.has_value();
  return {.operand = blocks.block * WidestOperand(config) * ElementBytes(products),
          .result = blocks.block * std::max(3 * config.embed_dim, WidestResult(config)) *
                    static_cast<int64_t>(sizeof(float)),
          .workspace = kProductWorkspaceBytes,
          .places = blocks.block * kNumber,
          .coords = positions ? blocks.block * 2 * kNumber : 0,
          .frequencies = positions ? config.embed_dim / 4 * kNumber : 0,
          .sums = config.embed_dim * kNumber};
}

int64_t ProductScratchBytes(const EncoderConfig& config, int64_t rows, DataType products) {
  // Only queries, keys and values are not float32 results.
  const bool panels = products == DataType::kBFloat16 && config.embed_dim > kLongestUncut;
  return kProductListsBytes +
         (panels ? rows * kPanelColumns * static_cast<int64_t>(sizeof(float)) : 0);
}

EncoderMemory MemoryOf(const EncoderPlan& plan, int rank, int threads, DataType products,
                       const EncoderOutputs& outputs) {
  const EncoderConfig& config = plan.config;
  const int64_t rows = plan.attention.shards.Rows(rank);
  const RowBlocks blocks(rows, threads);
  const int64_t busy = std::min<int64_t>(std::max(1, threads), blocks.count());
  const int64_t element = ElementBytes(products);
  const auto floats = static_cast<int64_t>(sizeof(float));
  int64_t output_bytes = PooledBytes(plan, rank, outputs) +
                         busy * blocks.block * MapColumnsOf(config, outputs) * floats;
  if (outputs.attention_map) output_bytes += MapExchangeBytes(plan, rank);
  const int64_t block_bytes =
      threads == 0
          ? DeviceBlockBytesOf(config, blocks, products).total()
          : busy * blocks.block * (WidestResult(config) * floats + WidestOperand(config) * element);
  return {.attention_bytes = plan.attention.costs.workers[rank].resident_bytes(),
          .residual_bytes = rows * config.embed_dim * floats,
          .block_bytes = block_bytes,
          .scratch_bytes =
              threads == 0 ? 0 : busy * ProductScratchBytes(config, blocks.block, products),
          .output_bytes = output_bytes};
}

double ProductFlops(const EncoderPlan& plan, int rank) {
  const EncoderConfig& config = plan.config;
  const auto width = static_cast<double>(config.embed_dim);
  const double of_layer = 4 * width * width + 2 * width * static_cast<double>(config.ffn_dim);
  return 2 * static_cast<double>(plan.attention.shards.Rows(rank)) *
             static_cast<double>(config.layers) * of_layer +
         ProjectionFlops(plan, rank);
}

double ProjectionFlops(const EncoderPlan& plan, int rank) {
  const EncoderConfig& config = plan.config;
  return 2 * static_cast<double>(plan.attention.shards.Rows(rank)) *
         static_cast<double>(config.embed_dim) * static_cast<double>(config.input_dim);
}

}  // namespace hilbert_ring
