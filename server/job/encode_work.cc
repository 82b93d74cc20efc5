#include "server/job/encode_work.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "engine/base/saturating.h"
#include "engine/model/files/grid_positions.h"
#include "engine/model/files/pooling.h"
#include "server/models/encode_spec.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

JobShape ShapeOf(const EncodeJob& job, const JobSpec& attention) {
  return {attention, RowSizesOf(job),
          std::make_shared<SlideRows>(job.slide_tiles, job.config.class_token ? 1 : 0)};
}

int64_t PooledRowBytes(const EncodeJob& job) {
  return std::ssize(job.outputs.states) * job.config.embed_dim *
         static_cast<int64_t>(sizeof(float));
}

class EncodeWork : public JobWork {
 public:
  EncodeWork(v1::EncodeSpec spec, EncodeJob job, const JobSpec& attention, std::string digest,
             std::optional<LayerNorm> norm, const EncodeWorkOptions& options)
      : JobWork(ShapeOf(job, attention)),
        message_(std::move(spec)),
        job_(std::move(job)),
        norm_(std::move(norm)),
        options_(options),
        weight_bytes_(WeightBytes(job_.config, job_.compute)),
        widened_weight_bytes_(WeightBytes(job_.config, DataType::kFloat32)) {
    message_.set_digest(std::move(digest));
    message_.mutable_states()->Assign(job_.outputs.states.begin(), job_.outputs.states.end());
  }

  std::string model() const override { return message_.model(); }

  Planner MakePlanner(std::function<bool()> cancelled) const override {
    return EncodePlanner(job_, options_.threads, std::move(cancelled));
  }

  int64_t pooled_bytes() const override {
    if (job_.outputs.pooling == Pooling::kNone) return 0;
    return SaturatingMultiply(std::ssize(job_.slide_tiles), PooledRowBytes(job_));
  }

  JobArray ArrayOf(v1::Tensor tensor) const override {
    const std::optional<TensorKind> kind = wire::TensorKindOf(tensor);
    if (!kind || !shape().rows.Has(*kind)) return {};
    const int64_t rows = shape().RowsOf(*kind);
    switch (*kind) {
      case TensorKind::kTiles:
        return {.shape = {rows, shape().rows[*kind] / ElementBytes(job_.dtype)},
                .dtype = job_.dtype};
      case TensorKind::kTileCoords:
        return {.shape = {rows, 2}, .numbers = JobArray::Numbers::kFloat64};
      case TensorKind::kStates:  // without the axis of a single state
        if (std::ssize(job_.outputs.states) == 1) return {.shape = {rows, job_.config.embed_dim}};
        return {.shape = {rows, std::ssize(job_.outputs.states), job_.config.embed_dim}};
      case TensorKind::kAttentionMap:  // of each head, or their mean
        if (!message_.attention_map_by_head()) return {.shape = {rows}};
        return {.shape = {rows, job_.config.heads}};
      default:
        return {};
    }
  }

  std::chrono::seconds start_timeout() const override { return LoadTimeout(job_.config); }

  bool CanRunOn(const Member& member) const override {
    const int64_t weights = member.bfloat16_products ? weight_bytes_ : widened_weight_bytes_;
    return member.model_memory_bytes >= weights &&
           member.models.Has(message_.model(), message_.digest());
  }

  absl::Status NobodyCan() const override {
    return wire::ErrorOf(
        wire::reason::kModelNotOnWorkers,
        absl::StrCat("no worker that is up has model ", message_.model(), " with the digest ",
                     message_.digest(), " (--model-dir), and ", weight_bytes_,
                     " bytes for its weights (--model-memory)",
                     widened_weight_bytes_ == weight_bytes_
                         ? ""
                         : absl::StrCat(", ", widened_weight_bytes_,
                                        " on a processor without products of bfloat16")));
  }

  absl::Status CheckChunk(const v1::Chunk& chunk, const wire::Payload& payload) const override {
    if (chunk.tensor() != v1::TENSOR_TILE_COORDS) return absl::OkStatus();
    std::vector<double> coords(static_cast<size_t>(2 * chunk.rows()));
    wire::PayloadReader(payload).Read(reinterpret_cast<char*>(coords.data()),
                                      std::ssize(coords) * static_cast<int64_t>(sizeof(double)));
    absl::Status status = CheckCoordinates(*job_.config.position, coords, chunk.first_row());
    return status.ok() ? status
                       : wire::WithReason(std::move(status), wire::reason::kBadCoordinates);
  }

  void Describe(v1::RunOpen& open) const override { *open.mutable_encode() = message_; }

  void BeginExecution() override {
    const MutexLock lock(mutex_);
    parts_.clear();
  }

  void TakePooled(int rank, const v1::PooledSums& pooled) override {
    PooledPart part{.first_slide = pooled.first_slide(),
                    .rows = {pooled.rows().begin(), pooled.rows().end()}};
    part.sums.resize(pooled.sums().size() / sizeof(double));
    std::memcpy(part.sums.data(), pooled.sums().data(), part.sums.size() * sizeof(double));
    const MutexLock lock(mutex_);
    parts_[{pooled.state(), rank}].push_back(std::move(part));
  }

  absl::Status SendResults(const Output& output) override;

  void AddTo(v1::Report& report) const override {
    report.set_model_digest(message_.digest());
    for (std::string& note : NotesOn(job_)) report.add_notes(std::move(note));
    if (options_.check_rows > 0) {
      report.add_notes("--check-rows: rows of an encoder's job are not computed again");
    }
  }

 private:
  v1::EncodeSpec message_;  // with digest and states
  const EncodeJob job_;
  const std::optional<LayerNorm> norm_;  // if slides are pooled
  const EncodeWorkOptions options_;
  const int64_t weight_bytes_, widened_weight_bytes_;  // with and without products of bfloat16
  Mutex mutex_;
  // Workers' sums by state and rank: the order of ranks makes the bits reproducible.
  std::map<std::pair<int64_t, int>, std::vector<PooledPart>> parts_ ABSL_GUARDED_BY(mutex_);
};

absl::Status EncodeWork::SendResults(const Output& output) {
  if (job_.outputs.pooling == Pooling::kNone) return absl::OkStatus();
  const int64_t slides = std::ssize(job_.slide_tiles);
  const int64_t dim = job_.config.embed_dim;
  const int64_t states = std::ssize(job_.outputs.states);
  const auto pooled = std::make_shared<std::vector<float>>(slides * states * dim);
  for (int64_t i = 0; i < states; ++i) {
    SlidePool pool(*shape().slides, job_.outputs.pooling, dim);
    {
      const MutexLock lock(mutex_);
      for (const auto& [key, parts] : parts_) {
        if (key.first != job_.outputs.states[i]) continue;
        for (const PooledPart& part : parts) pool.Add(part);
      }
    }
    const auto of_state = pool.Finish(*norm_);
    if (!of_state.ok()) {
      return absl::InternalError(absl::StrCat("the workers' pooled sums are not those of the job: ",
                                              of_state.status().message()));
    }
    for (int64_t slide = 0; slide < slides; ++slide) {
      std::copy_n(of_state->data() + slide * dim, dim, pooled->data() + (slide * states + i) * dim);
    }
  }
  const int64_t row_bytes = PooledRowBytes(job_);
  const int64_t most = wire::kMaxPayloadBytes / row_bytes;
  for (int64_t slide = 0; slide < slides;) {
    const int64_t rows = std::min(most, slides - slide);
    const std::string_view payload(
        reinterpret_cast<const char*>(pooled->data()) + slide * row_bytes,
        static_cast<size_t>(rows * row_bytes));
    v1::OutputChunk chunk;
    chunk.set_tensor(v1::TENSOR_POOLED);
    chunk.set_first_token(slide);
    chunk.set_rows(rows);
    chunk.set_crc32c(wire::Crc32c(payload));
    RETURN_IF_ERROR(output(chunk, payload, pooled));
    slide += rows;
  }
  return absl::OkStatus();
}

}  // namespace

Planner EncodePlanner(const EncodeJob& job, int threads, std::function<bool()> cancelled) {
  return [job, threads, cancelled = std::move(cancelled)](int workers) -> absl::StatusOr<Plan> {
    ASSIGN_OR_RETURN(const EncoderPlan plan,
                     MakeEncoderPlan(job.config, job.compute, job.slide_tiles, workers, cancelled));
    return PlanOfJob(job, plan, threads);
  };
}

absl::StatusOr<std::unique_ptr<JobWork>> MakeEncodeWork(const v1::EncodeSpec& spec,
                                                        ModelCatalog& models,
                                                        const EncodeWorkOptions& options) {
  ASSIGN_OR_RETURN(EncoderFolder model, models.Open(spec.model(), spec.digest()));
  ASSIGN_OR_RETURN(EncodeJob job, DecodeEncodeSpec(spec, model.config(), options.limits));
  auto attention = AttentionOf(job.config, job.compute, job.slide_tiles);
  if (attention.ok()) {
    if (absl::Status valid = Validate(*attention, options.limits); !valid.ok()) attention = valid;
  }
  if (!attention.ok()) return wire::WithReason(attention.status(), wire::reason::kInvalidSpec);
  std::optional<LayerNorm> norm;
  if (job.outputs.pooling != Pooling::kNone) {
    auto loaded = model.LoadNorm();
    absl::Status status = loaded.ok() ? model.CheckUnchanged() : loaded.status();
    if (!status.ok()) return wire::WithReason(std::move(status), wire::reason::kModelUnusable);
    norm = *std::move(loaded);
  }
  const int64_t row_bytes = norm ? PooledRowBytes(job) : 0;
  auto work = std::make_unique<EncodeWork>(spec, std::move(job), *attention, model.digest(),
                                           std::move(norm), options);
  if (row_bytes > wire::kMaxPayloadBytes || work->result_bytes() > options.max_result_bytes) {
    return wire::WithReason(
        absl::OutOfRangeError(absl::StrCat(
            "states: a row of POOLED has ", row_bytes, " bytes, the limit of a chunk is ",
            wire::kMaxPayloadBytes, "; all of them take ", work->result_bytes(),
            " at the coordinator, whose limit is ", options.max_result_bytes,
            " (a quarter of --total-order-memory-limit)")),
        wire::reason::kInvalidSpec);
  }
  return work;
}

}  // namespace hilbert_ring::server
