#include "engine/model/encoder_rank.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "engine/base/first_error.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cpu/thread_pool.h"
#include "engine/model/attention_map.h"
#include "engine/model/files/grid_positions.h"
#include "engine/model/files/map_transfers.h"
#include "engine/model/pool_rows.h"
#include "engine/model/rank_rows.h"
#include "engine/run/executor.h"
#include "engine/run/shard_store.h"

namespace hilbert_ring {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Rank : public EncoderRank {
 public:
  Rank(std::shared_ptr<const EncoderModel> model, const EncoderPlan& plan, int rank, Device& device,
       const EncoderOutputs& outputs)
      : held_model_(std::move(model)),
        model_(*held_model_),
        plan_(plan),
        rank_(rank),
        device_(device),
        outputs_(outputs),
        blocks_(plan.attention.shards.Rows(rank), device.info().threads),
        pool_(static_cast<int>(
            std::clamp<int64_t>(blocks_.count(), 1, std::max(1, device.info().threads)))) {}

  absl::Status Prepare();
  absl::Status PlaceTiles(const JobTiles& tiles, const EncoderControl& control) override;
  absl::StatusOr<EncoderFigures> Run(Communicator* communicator, int64_t first_step,
                                     const EncoderControl& control) override;

 private:
  int64_t width() const { return model_.config().embed_dim; }
  ModelRows BlockAt(int64_t index) const {
    return {.first = blocks_.Begin(index), .count = blocks_.Rows(index)};
  }

  std::vector<int64_t> ClassTokenRows() const;
  std::vector<int64_t> LocalRows(int64_t first_tile, int64_t tiles) const;

  // Not OK if the job was cancelled or its deadline passed.
  static absl::Status Asked(const EncoderControl& control);

  // Calls work(thread, index) for each block of rows, until one fails or the job ends.
  template <typename Work>
  absl::Status ForEachBlock(const EncoderControl& control, const Work& work);

  // Calls work(range, from, to) for the local rows of each shard range in a block, until one fails.
  template <typename Work>
  absl::Status ForEachRangeOf(int64_t index, const Work& work) const {
    const int64_t begin = blocks_.Begin(index), end = begin + blocks_.Rows(index);
    for (const ShardRange& range : plan_.attention.shards.OfRank(rank_)) {
      const int64_t from = std::max(begin, range.local_begin);
      const int64_t to = std::min(end, range.local_begin + range.size());
      if (from < to) RETURN_IF_ERROR(work(range, from, to));
    }
    return absl::OkStatus();
  }

  absl::Status RunBlock(int thread, int64_t index, int64_t layer, const EncoderControl& control);
  absl::Status EmitRows(int thread, int64_t index, int64_t state, const EncoderControl& control);
  absl::Status EmitPooled(int64_t state, const EncoderControl& control);
  // `layer` has just run: its queries and keys are still in the shard.
  absl::Status ExchangeMap(int64_t layer, Communicator* communicator, int64_t first_step,
                           const EncoderControl& control);
  absl::Status EmitMap(const EncoderControl& control);
  absl::Status Attend(int64_t layer, Communicator* communicator, int64_t first_step,
                      const EncoderControl& control);

  // The attention's steps, and one for a map's exchange.
  int64_t StepsOfLayer() const { return plan_.attention.costs.steps + 1; }
  bool MapIsOf(int64_t layer) const {
    return outputs_.attention_map && outputs_.attention_map->layer == layer;
  }
  bool Wanted(int64_t state) const {
    return std::ranges::find(outputs_.states, state) != outputs_.states.end();
  }
  // Without a projection a placed row counts as the projection of one number.
  double PlacingFlops() const {
    return std::max(ProjectionFlops(plan_, rank_),
                    2.0 * static_cast<double>(blocks_.rows) * static_cast<double>(width()));
  }
  double LayersFlops() const { return ProductFlops(plan_, rank_) - ProjectionFlops(plan_, rank_); }
  double PlannedFlops() const {
    return PlacingFlops() + LayersFlops() +
           static_cast<double>(model_.config().layers) * plan_.attention.costs.workers[rank_].flops;
  }
  void Report(const EncoderControl& control, double more) const {
    if (control.progress) control.progress(std::min(1.0, (flops_ + more) / PlannedFlops()));
  }

  const std::shared_ptr<const EncoderModel> held_model_;
  const EncoderModel& model_;
  const EncoderPlan& plan_;
  const int rank_;
  Device& device_;
  const EncoderOutputs outputs_;
  const RowBlocks blocks_;
  ThreadPool pool_;
  std::unique_ptr<RankRows> rows_;
  // q, k, v and out of the current layer. Rows of out that no branch selects stay zero.
  std::unique_ptr<ShardStore> shard_;
  std::optional<AttentionMap> map_;
  std::vector<std::vector<float>> map_rows_;  // [threads][block, columns], with a map
  EncoderFigures figures_;
  std::atomic<int64_t> placed_ = 0;  // tiles
  double flops_ = 0;                 // of finished stages
  int64_t attention_peak_bytes_ = 0;
};

absl::Status Rank::Prepare() {
  ASSIGN_OR_RETURN(shard_, ShardStore::Make(device_, plan_.attention, rank_));
  ASSIGN_OR_RETURN(rows_, device_.host_memory()
                              ? MakeHostRows(model_, blocks_, pool_.threads(), device_)
                              : MakeDeviceRows(model_, blocks_, device_));
  figures_.memory_peak_bytes += rows_->bytes();
  if (outputs_.attention_map) {
    map_.emplace(plan_, rank_, outputs_.attention_map->columns);
    const int64_t numbers = blocks_.block * map_->columns();
    map_rows_.assign(pool_.threads(), std::vector<float>(static_cast<size_t>(numbers)));
    figures_.memory_peak_bytes +=
        MapExchangeBytes(plan_, rank_) +
        std::ssize(map_rows_) * numbers * static_cast<int64_t>(sizeof(float));
  }
  return rows_->PlaceClassTokens(ClassTokenRows());
}

std::vector<int64_t> Rank::ClassTokenRows() const {
  std::vector<int64_t> rows;
  if (!model_.config().class_token) return rows;
  for (const ShardRange& range : plan_.attention.shards.OfRank(rank_)) {
    for (int64_t slide = plan_.rows.SlideOf(range.begin); slide < plan_.rows.slides(); ++slide) {
      const int64_t token = plan_.rows.FirstToken(slide);
      if (token >= range.end) break;
      if (token >= range.begin) rows.push_back(range.LocalRow(token));
    }
  }
  return rows;
}

std::vector<int64_t> Rank::LocalRows(int64_t first_tile, int64_t tiles) const {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(tiles));
  for (const TileSpan& run : plan_.rows.RunsOf(first_tile, tiles)) {
    for (int64_t token = run.first_token; token < run.first_token + run.tiles; ++token) {
      rows.push_back(plan_.attention.shards.Find(token).LocalRow(token));
    }
  }
  return rows;
}

absl::Status Rank::PlaceTiles(const JobTiles& tiles, const EncoderControl& control) {
  const std::vector<int64_t> rows = LocalRows(tiles.first, tiles.count);
  const auto& position = model_.config().position;
  if (position) RETURN_IF_ERROR(CheckCoordinates(*position, tiles.coords, tiles.first));
  const int64_t tile_bytes = model_.config().tile_dim() * ElementBytes(tiles.dtype);
  const int64_t block = blocks_.block;
  const double of_row = PlacingFlops() / static_cast<double>(std::max<int64_t>(1, blocks_.rows));
  FirstError error;
  const auto place = [&](int thread, int64_t piece) -> absl::Status {
    RETURN_IF_ERROR(Asked(control));
    const int64_t begin = piece * block, size = std::min(block, tiles.count - begin);
    RETURN_IF_ERROR(rows_->PlaceTiles(
        thread,
        {.dtype = tiles.dtype,
         .values = static_cast<const std::byte*>(tiles.values) + begin * tile_bytes,
         .rows = std::span(rows).subspan(begin, size),
         .coords = tiles.coords.subspan(position ? 2 * begin : 0, position ? 2 * size : 0)}));
    Report(control, of_row * static_cast<double>(placed_ += size));
    return absl::OkStatus();
  };
  pool_.Run((tiles.count + block - 1) / block, 1, [&](int thread, int64_t piece, int64_t /*end*/) {
    KeepProductsOnThisThread();
    return error.Note(place(thread, piece));
  });
  return error.Take();
}

absl::Status Rank::Asked(const EncoderControl& control) {
  if (control.cancelled && control.cancelled()) return absl::CancelledError("job cancelled");
  if (control.deadline && Clock::now() >= control.deadline()) {
    return absl::DeadlineExceededError("the job's deadline passed while computing");
  }
  return absl::OkStatus();
}

template <typename Work>
absl::Status Rank::ForEachBlock(const EncoderControl& control, const Work& work) {
  FirstError error;
  pool_.Run(blocks_.count(), 1, [&](int thread, int64_t index, int64_t /*end*/) {
    KeepProductsOnThisThread();
    absl::Status asked = Asked(control);
    return error.Note(asked.ok() ? work(thread, index) : std::move(asked));
  });
  return error.Take();
}

// The row work from the attention of `layer` to the next one's; layer -1: before the first.
absl::Status Rank::RunBlock(int thread, int64_t index, int64_t layer,
                            const EncoderControl& control) {
  const ModelRows block = BlockAt(index);
  const auto at = [&](TensorKind tensor) { return shard_->Row(tensor, block.first); };
  if (layer >= 0) {
    RETURN_IF_ERROR(rows_->AfterAttention(thread, layer, block, at(TensorKind::kOut)));
  }
  if (outputs_.pooling == Pooling::kNone && Wanted(layer + 1)) {
    RETURN_IF_ERROR(EmitRows(thread, index, layer + 1, control));
  }
  if (layer + 1 == model_.config().layers) return absl::OkStatus();
  return rows_->BeforeAttention(thread, layer + 1, block,
                                {at(TensorKind::kQ), at(TensorKind::kK), at(TensorKind::kV)});
}

absl::Status Rank::EmitRows(int thread, int64_t index, int64_t state,
                            const EncoderControl& control) {
  const ModelRows block = BlockAt(index);
  ASSIGN_OR_RETURN(const float* const values, rows_->OnHost(thread, block, outputs_.final_norm));
  return ForEachRangeOf(index, [&](const ShardRange& range, int64_t from, int64_t to) {
    return control.rows({.state = state,
                         .first_token = range.begin + from - range.local_begin,
                         .rows = to - from,
                         .values = values + (from - block.first) * width()});
  });
}

absl::Status Rank::EmitPooled(int64_t state, const EncoderControl& control) {
  ASSIGN_OR_RETURN(
      const PooledPart part,
      PoolRows(
          {.plan = plan_, .rank = rank_, .pooling = outputs_.pooling, .norm = outputs_.final_norm},
          *rows_, pool_));
  return control.pooled(state, part);
}

absl::Status Rank::ExchangeMap(int64_t layer, Communicator* communicator, int64_t first_step,
                               const EncoderControl& control) {
  if (!map_->exchanges()) return absl::OkStatus();
  if (control.cancelled && control.cancelled()) return absl::CancelledError("job cancelled");
  const int64_t step = layer * StepsOfLayer();
  const Clock::time_point start = Clock::now();
  if (control.waiting) control.waiting(step);
  absl::Status status = map_->Exchange(*shard_, communicator, first_step + step - 1,
                                       control.deadline ? control.deadline() : Deadline::max());
  if (control.waiting) control.waiting(0);
  figures_.exposed_exchange_seconds += SecondsSince(start);
  figures_.bytes_sent += map_->bytes_sent();
  figures_.bytes_received += map_->bytes_received();
  if (control.attention_span) {
    control.attention_span(layer, SpanKind::kWait, StepsOfLayer(), start, Clock::now());
  }
  return status;
}

absl::Status Rank::EmitMap(const EncoderControl& control) {
  return ForEachBlock(control, [&](int thread, int64_t index) -> absl::Status {
    float* const values = map_rows_[thread].data();
    return ForEachRangeOf(index, [&](const ShardRange& range, int64_t from, int64_t to) {
      RETURN_IF_ERROR(map_->RowsOf(*shard_, from, to - from, values));
      return control.map({.first_token = range.begin + from - range.local_begin,
                          .rows = to - from,
                          .values = values});
    });
  });
}

absl::Status Rank::Attend(int64_t layer, Communicator* communicator, int64_t first_step,
                          const EncoderControl& control) {
  const double planned = plan_.attention.costs.workers[rank_].flops;
  ExecuteControl attend{.deadline = control.deadline,
                        .cancelled = control.cancelled,
                        .progress = [&](double fraction) { Report(control, fraction * planned); }};
  if (control.waiting) {
    // A rank in an earlier layer reports a smaller step: it is behind.
    attend.waiting = [&](int64_t step) {
      control.waiting(step == 0 ? 0 : (layer - 1) * StepsOfLayer() + step);
    };
  }
  if (control.attention_span) {
    attend.span = [&](SpanKind kind, int64_t step, Deadline begin, Deadline end) {
      control.attention_span(layer, kind, step, begin, end);
    };
  }
  ASSIGN_OR_RETURN(const Figures figures, Execute(plan_.attention, rank_, *shard_, device_,
                                                  communicator, first_step, attend));
  flops_ += planned;
  figures_.attention_flops += figures.flops;
  figures_.attention_seconds += figures.compute_seconds;
  figures_.exposed_exchange_seconds += figures.exposed_exchange_seconds;
  figures_.bytes_sent += figures.bytes_sent;
  figures_.bytes_received += figures.bytes_received;
  attention_peak_bytes_ = std::max(attention_peak_bytes_, figures.memory_peak_bytes);
  return absl::OkStatus();
}

absl::StatusOr<EncoderFigures> Rank::Run(Communicator* communicator, int64_t first_step,
                                         const EncoderControl& control) {
  const int64_t layers = model_.config().layers;
  flops_ = PlacingFlops();
  for (int64_t layer = -1; layer < layers; ++layer) {
    if (layer >= 0) {
      RETURN_IF_ERROR(
          Attend(layer + 1, communicator, first_step + layer * StepsOfLayer(), control));
    }
    if (MapIsOf(layer + 1)) {
      RETURN_IF_ERROR(ExchangeMap(layer + 1, communicator, first_step, control));
    }
    const Clock::time_point start = Clock::now();
    if (MapIsOf(layer + 1)) RETURN_IF_ERROR(EmitMap(control));
    const double planned = LayersFlops() / static_cast<double>(layers + 1);
    std::atomic<int64_t> done = 0;  // blocks
    RETURN_IF_ERROR(ForEachBlock(control, [&](int thread, int64_t index) -> absl::Status {
      RETURN_IF_ERROR(RunBlock(thread, index, layer, control));
      Report(control, planned * static_cast<double>(++done) / static_cast<double>(blocks_.count()));
      return absl::OkStatus();
    }));
    if (outputs_.pooling != Pooling::kNone && Wanted(layer + 1)) {
      RETURN_IF_ERROR(EmitPooled(layer + 1, control));
    }
    figures_.row_seconds += SecondsSince(start);
    if (control.rows_span) control.rows_span(layer + 1, start, Clock::now());
    flops_ += planned;
    Report(control, 0);
    if (control.layer && layer >= 0) control.layer(layer + 1);
  }
  figures_.product_flops = ProductFlops(plan_, rank_);
  figures_.memory_peak_bytes += attention_peak_bytes_ + PooledBytes(plan_, rank_, outputs_);
  return figures_;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EncoderRank>> EncoderRank::Make(
    std::shared_ptr<const EncoderModel> model, const EncoderPlan& plan, int rank, Device& device,
    const EncoderOutputs& outputs) {
  auto made = std::make_unique<Rank>(std::move(model), plan, rank, device, outputs);
  RETURN_IF_ERROR(made->Prepare());
  return made;
}

}  // namespace hilbert_ring
