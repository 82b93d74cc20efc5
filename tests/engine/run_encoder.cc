#include "tests/engine/run_encoder.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/base/return_if_error.h"
#include "engine/spec/numbers.h"
#include "tests/engine/encoder_device.h"

namespace hilbert_ring::testing {
namespace {

class Runner {
 public:
  Runner(std::shared_ptr<const EncoderModel> model, const EncoderInput& input,
         const EncoderRun& run, EncoderPlan plan)
      : held_model_(std::move(model)),
        model_(*held_model_),
        input_(input),
        run_(run),
        result_{.plan = std::move(plan)} {
    const int64_t width = model_.config().embed_dim;
    const bool pooled = run.outputs.pooling != Pooling::kNone;
    for (const int64_t state : run.outputs.states) {
      if (!pooled) result_.states[state].assign(result_.plan.rows.tokens() * width, NAN);
      parts_[state].resize(run.ranks);
    }
    result_.map.assign(result_.plan.rows.tokens() * MapColumnsOf(model_.config(), run.outputs),
                       NAN);
    result_.figures.resize(run.ranks);
  }

  absl::Status RunRank(int rank, Communicator& communicator) {
    std::unique_ptr<Device> own;
    if (EncoderKernel() == "cpu") {
      ASSIGN_OR_RETURN(own,
                       MakeDevice({.threads = run_.threads, .instructions = run_.instructions}));
    }
    Device& device = own != nullptr ? *own : KeptGpu(rank);
    ASSIGN_OR_RETURN(const auto encoder,
                     EncoderRank::Make(held_model_, result_.plan, rank, device, run_.outputs));
    RETURN_IF_ERROR(Place(rank, *encoder, device));
    EncoderControl control = run_.control;
    const int64_t width = model_.config().embed_dim;
    control.rows = [&](const StateRows& rows) {
      std::copy_n(rows.values, rows.rows * width,
                  result_.states[rows.state].begin() + rows.first_token * width);
      return absl::OkStatus();
    };
    control.pooled = [&](int64_t state, const PooledPart& part) {
      parts_[state][rank] = part;
      return absl::OkStatus();
    };
    const int64_t columns = MapColumnsOf(model_.config(), run_.outputs);
    control.map = [&, columns](const MapRows& rows) {
      if (run_.control.map) RETURN_IF_ERROR(run_.control.map(rows));
      std::copy_n(rows.values, rows.rows * columns,
                  result_.map.begin() + rows.first_token * columns);
      return absl::OkStatus();
    };
    ASSIGN_OR_RETURN(result_.figures[rank], encoder->Run(&communicator, 0, control));
    return absl::OkStatus();
  }

  absl::StatusOr<EncoderResult> Take() {
    if (run_.outputs.pooling == Pooling::kNone) return std::move(result_);
    for (const auto& [state, parts] : parts_) {
      SlidePool pool(result_.plan.rows, run_.outputs.pooling, model_.config().embed_dim);
      for (const PooledPart& part : parts) pool.Add(part);
      ASSIGN_OR_RETURN(result_.pooled[state], pool.Finish(*model_.weights().norm));
    }
    return std::move(result_);
  }

 private:
  absl::Status Place(int rank, EncoderRank& encoder, Device& device) const {
    const int64_t dim = model_.config().tile_dim();
    std::vector<std::byte> values(run_.tiles_at_once * dim * ElementBytes(run_.tiles_dtype));
    std::unique_ptr<Buffer> on_device;
    if (!device.host_memory()) {
      ASSIGN_OR_RETURN(on_device, device.Allocate(std::ssize(values)));
    }
    for (const ShardRange& range : result_.plan.attention.shards.OfRank(rank)) {
      const SlideRows::Tiles tiles = result_.plan.rows.TilesOf(range.begin, range.end);
      for (int64_t first = tiles.begin; first < tiles.end; first += run_.tiles_at_once) {
        const int64_t count = std::min(run_.tiles_at_once, tiles.end - first);
        for (int64_t i = 0; i < count * dim; ++i) {
          StoreElement(run_.tiles_dtype, values.data(), i, input_.tiles[first * dim + i]);
        }
        std::span<const double> coords(input_.coords);
        if (!coords.empty()) coords = coords.subspan(2 * first, 2 * count);
        const std::byte* placed = values.data();
        if (on_device != nullptr) {
          RETURN_IF_ERROR(device.CopyIn(on_device->data(), values.data(), std::ssize(values)));
          placed = on_device->data();
        }
        RETURN_IF_ERROR(encoder.PlaceTiles({.first = first,
                                            .count = count,
                                            .dtype = run_.tiles_dtype,
                                            .values = placed,
                                            .coords = coords},
                                           run_.placing));
      }
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const EncoderModel> held_model_;
  const EncoderModel& model_;
  const EncoderInput& input_;
  const EncoderRun& run_;
  EncoderResult result_;
  std::map<int64_t, std::vector<PooledPart>> parts_;  // by state and rank
};

}  // namespace

absl::StatusOr<EncoderResult> RunEncoder(const std::shared_ptr<const EncoderModel>& model,
                                         const EncoderInput& input, const EncoderRun& run) {
  ASSIGN_OR_RETURN(EncoderPlan plan, MakeEncoderPlan(model->config(), model->compute(),
                                                     input.slide_tiles, run.ranks));
  ASSIGN_OR_RETURN(const CommunicatorRing ring, MakeCommunicatorRing(run.ring, run.ranks));
  Runner runner(model, input, run, std::move(plan));
  std::vector<absl::Status> statuses(run.ranks);
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    statuses[rank] = runner.RunRank(rank, communicator);
    if (!statuses[rank].ok()) {
      for (const auto& other : ring) other->Abort(std::string(statuses[rank].message()));
    }
  });
  // Other ranks fail with ABORTED; the cause is another status.
  for (const absl::Status& status : statuses) {
    if (!status.ok() && !absl::IsAborted(status)) return status;
  }
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return runner.Take();
}

}  // namespace hilbert_ring::testing
