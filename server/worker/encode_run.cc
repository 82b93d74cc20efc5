// The RunWork of an encoder's job.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "engine/model/encoder_rank.h"
#include "engine/model/files/encode_job.h"
#include "server/models/encode_spec.h"
#include "server/worker/file_rows.h"
#include "server/worker/model_store.h"

namespace hilbert_ring::server {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

constexpr int64_t kPieceRows = 4096;                // waited for together
constexpr int64_t kPooledBytes = int64_t{2} << 20;  // in a message

JobShape ShapeOf(const EncodeJob& job, const EncoderPlan& plan) {
  return {plan.attention.spec, RowSizesOf(job), std::make_shared<SlideRows>(plan.rows)};
}

Plan PlanHere(const EncodeJob& job, const EncoderPlan& plan, int threads,
              const ModelStore& models) {
  Plan whole = PlanOfJob(job, plan, threads);
  if (models.ProductsOf(job.compute) != job.compute) CountWidened(whole.costs);
  return whole;
}

class EncodeRun : public RunWork {
 public:
  EncodeRun(EncodeJob job, EncoderPlan plan, EncoderFolder folder, ModelStore& models, int rank,
            int threads)
      : RunWork(ShapeOf(job, plan), PlanHere(job, plan, threads, models), rank),
        job_(std::move(job)),
        plan_(std::move(plan)),
        folder_(std::move(folder)),
        models_(models) {}

  // Without memory for the model a job before this one may have it: Prepare loads again.
  absl::Status Read(const std::function<bool()>& cancelled) override {
    absl::Status loaded = Load(cancelled);
    return absl::IsResourceExhausted(loaded) ? absl::OkStatus() : loaded;
  }
  absl::Status Prepare(Device& device, const std::function<bool()>& cancelled) override;
  absl::StatusOr<Figures> Execute(ShardStore& store, Device& device, Communicator* communicator,
                                  int64_t first_step, const WorkControl& control) override;
  std::vector<v1::PooledSums> TakePooled() override { return std::move(pooled_); }

 private:
  absl::Status Load(const std::function<bool()>& cancelled) {
    ASSIGN_OR_RETURN(model_, models_.Load(*folder_, job_.compute, cancelled));
    folder_.reset();  // closing it may take as long as reading it
    return absl::OkStatus();
  }
  absl::Status PlaceTiles(const ShardStore& store, const ExecuteControl& execute,
                          const EncoderControl& control);
  absl::Status PlacePiece(const ShardStore& store, const RowPiece& piece,
                          const EncoderControl& control);
  absl::Status KeepStates(ShardStore& store, Device& device, const StateRows& rows) const;
  void KeepPooled(int64_t state, const PooledPart& part);

  const EncodeJob job_;
  const EncoderPlan plan_;
  std::optional<EncoderFolder> folder_;  // until the model is loaded
  ModelStore& models_;
  std::shared_ptr<const EncoderModel> model_;
  std::unique_ptr<EncoderRank> rank_;  // last: uses the members above
  std::vector<v1::PooledSums> pooled_;
};

absl::Status EncodeRun::Prepare(Device& device, const std::function<bool()>& cancelled) {
  if (model_ == nullptr) RETURN_IF_ERROR(Load(cancelled));
  if (cancelled && cancelled()) return absl::CancelledError("the job was cancelled");
  ASSIGN_OR_RETURN(rank_, EncoderRank::Make(model_, plan_, rank(), device, job_.outputs));
  return absl::OkStatus();
}

absl::Status EncodeRun::PlacePiece(const ShardStore& store, const RowPiece& piece,
                                   const EncoderControl& control) {
  std::vector<double> coords;
  if (job_.config.position) {
    coords.resize(static_cast<size_t>(2 * piece.rows));
    RETURN_IF_ERROR(
        store.Read(TensorKind::kTileCoords, piece.memory_row, piece.rows, coords.data()));
  }
  return rank_->PlaceTiles({.first = piece.file_row,
                            .count = piece.rows,
                            .dtype = job_.dtype,
                            .values = store.Row(TensorKind::kTiles, piece.memory_row),
                            .coords = coords},
                           control);
}

absl::Status EncodeRun::PlaceTiles(const ShardStore& store, const ExecuteControl& execute,
                                   const EncoderControl& control) {
  for (int64_t begin = 0; begin < store.rows(); begin += kPieceRows) {
    const int64_t end = std::min(begin + kPieceRows, store.rows());
    if (execute.await_rows) RETURN_IF_ERROR(execute.await_rows(end));
    for (const RowPiece& piece : PiecesOf(*this, {}, TensorKind::kTiles, begin, end)) {
      RETURN_IF_ERROR(PlacePiece(store, piece, control));
    }
  }
  return absl::OkStatus();
}

// A row of the store has the wanted states in their order; a state may appear twice.
absl::Status EncodeRun::KeepStates(ShardStore& store, Device& device, const StateRows& rows) const {
  const auto& states = job_.outputs.states;
  const ShardRange& range = plan_.attention.shards.Find(rows.first_token);
  const int64_t first = range.LocalRow(rows.first_token);
  std::vector<int64_t> places(static_cast<size_t>(rows.rows));
  for (int64_t place = 0; place < std::ssize(states); ++place) {
    if (states[place] != rows.state) continue;
    for (int64_t i = 0; i < rows.rows; ++i) {
      places[i] = (first + i) * std::ssize(states) + place;
    }
    RETURN_IF_ERROR(device.CopyRowsIn(
        {.to = store.Row(TensorKind::kStates, 0),
         .from = rows.values,
         .rows = places,
         .row_bytes = job_.config.embed_dim * static_cast<int64_t>(sizeof(float))}));
  }
  return absl::OkStatus();
}

void EncodeRun::KeepPooled(int64_t state, const PooledPart& part) {
  const int64_t dim = job_.config.embed_dim;
  const int64_t most =
      std::max<int64_t>(1, kPooledBytes / (dim * static_cast<int64_t>(sizeof(double))));
  const int64_t slides = std::ssize(part.rows);
  for (int64_t slide = 0; slide < slides; slide += most) {
    const int64_t count = std::min(most, slides - slide);
    v1::PooledSums& sums = pooled_.emplace_back();
    sums.set_state(state);
    sums.set_first_slide(part.first_slide + slide);
    sums.mutable_rows()->Assign(part.rows.begin() + slide, part.rows.begin() + slide + count);
    sums.set_sums(part.sums.data() + slide * dim,
                  static_cast<size_t>(count * dim) * sizeof(double));
  }
}

absl::StatusOr<Figures> EncodeRun::Execute(ShardStore& store, Device& device,
                                           Communicator* communicator, int64_t first_step,
                                           const WorkControl& control) {
  const ExecuteControl& execute = control.execute;
  const EncoderControl encoder{
      .deadline = execute.deadline,
      .cancelled = execute.cancelled,
      .progress =
          [&execute](double done) {
            // 1 is reported below, while all memory is still there.
            if (execute.progress) execute.progress(std::min(done, 0.999));
          },
      .waiting = execute.waiting,
      .layer = control.layer,
      .attention_span = control.attention_span,
      .rows_span = control.rows_span,
      .rows = [&](const StateRows& rows) { return KeepStates(store, device, rows); },
      .pooled =
          [&](int64_t state, const PooledPart& part) {
            KeepPooled(state, part);
            return absl::OkStatus();
          },
      .map =
          [&](const MapRows& rows) {
            const ShardRange& range = plan_.attention.shards.Find(rows.first_token);
            return store.Write(TensorKind::kAttentionMap, range.LocalRow(rows.first_token),
                               rows.rows, rows.values);
          }};
  RETURN_IF_ERROR(PlaceTiles(store, execute, encoder));
  ASSIGN_OR_RETURN(const EncoderFigures figures, rank_->Run(communicator, first_step, encoder));
  if (execute.progress) execute.progress(1);
  const bool has_rows = std::ranges::any_of(
      kOutputKinds, [this](TensorKind tensor) { return shape().rows.Has(tensor); });
  if (has_rows && execute.rows_final) {
    execute.rows_final(store.rows());
  }
  return Figures{.flops = figures.product_flops + figures.attention_flops,
                 .compute_seconds = figures.row_seconds + figures.attention_seconds,
                 .exposed_exchange_seconds = figures.exposed_exchange_seconds,
                 .bytes_sent = figures.bytes_sent,
                 .bytes_received = figures.bytes_received,
                 .memory_peak_bytes = figures.memory_peak_bytes + store.bytes()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunWork>> MakeEncodeRun(const v1::RunOpen& open, ModelStore& models,
                                                       int threads) {
  const v1::EncodeSpec& spec = open.encode();
  ASSIGN_OR_RETURN(EncoderFolder folder, models.catalog().Open(spec.model(), spec.digest()));
  ASSIGN_OR_RETURN(EncodeJob job, DecodeEncodeSpec(spec, folder.config(), SpecLimits()));
  ASSIGN_OR_RETURN(EncoderPlan plan,
                   MakeEncoderPlan(job.config, job.compute, job.slide_tiles, ShardsOf(open)));
  KeepListsOf(open.rank(), plan.attention);
  return std::make_unique<EncodeRun>(std::move(job), std::move(plan), std::move(folder), models,
                                     open.rank(), threads);
}

}  // namespace hilbert_ring::server
