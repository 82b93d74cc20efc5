// One rank's part of an encoder's job: its rows go in as tiles, pass all layers, and leave as
// states or as parts of pooled vectors.
//
//   auto plan = MakeEncoderPlan(model->config(), model->compute(), {9999, 40}, ranks).value();
//   auto rank = EncoderRank::Make(model, plan, 2, device, outputs).value();    // all its memory
//   rank->PlaceTiles(tiles, control);                        // until all of its tiles are there
//   auto figures = rank->Run(communicator, 0, control);      // outputs leave by control's calls
//
// All but attention is local to a row: norms, products and the feed-forward part run block by block
// on the threads of the pool (rank_rows.h), and the products of a layer's end are followed at once
// by those of the next one's begin. Attention runs the plan's exchange once a layer, on the same
// buffers. On a GPU all of that is done in its memory; outputs leave it block by block, and a map
// of attention is computed on the host from keys that leave it so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"
#include "engine/model/encoder_model.h"
#include "engine/model/files/encoder_plan.h"
#include "engine/model/files/pooling.h"
#include "engine/run/executor.h"

namespace hilbert_ring {

// Tiles [first, first + count) of the job.
struct JobTiles {
  int64_t first = 0;
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  const void* values = nullptr;    // [count, tile_dim], memory of the device
  std::span<const double> coords;  // [count, 2] pixels where the model has positions, else empty
};

// Rows of a wanted state: tokens [first_token, first_token + rows) of the job.
struct StateRows {
  int64_t state = 0;
  int64_t first_token = 0;
  int64_t rows = 0;
  const float* values = nullptr;  // [rows, embed_dim], valid during the call
};

// Rows of the map of attention: tokens as of StateRows.
struct MapRows {
  int64_t first_token = 0;
  int64_t rows = 0;
  const float* values = nullptr;  // [rows, 1 or heads], valid during the call
};

struct EncoderControl {
  // As in ExecuteControl; asked between blocks and tiles, and between blocks of tiles that are
  // placed.
  std::function<Deadline()> deadline;
  std::function<bool()> cancelled;
  std::function<void(double fraction)> progress;  // of the rank's multiplications; any thread
  // As in ExecuteControl; steps rise from layer to layer, that of a map follows its layer's.
  std::function<void(int64_t step)> waiting;
  std::function<void(int64_t layer)> layer;  // from 1: it was computed; the calling thread
  // As in ExecuteControl, of each layer's attention (from 1), steps from 1 in each, and of the wait
  // for a map's rows in the step after; and rows: between that and the next one, layer 0 before the
  // first.
  std::function<void(int64_t layer, SpanKind kind, int64_t step, Deadline begin, Deadline end)>
      attention_span;
  std::function<void(int64_t layer, Deadline begin, Deadline end)> rows_span;

  // Pooling::kNone: every row of every wanted state once, by any thread.
  std::function<absl::Status(const StateRows& rows)> rows;
  // Otherwise: the rank's part of each wanted state, in their order, by the calling thread.
  std::function<absl::Status(int64_t state, const PooledPart& part)> pooled;
  // Where a map is wanted: every row of it once, by any thread.
  std::function<absl::Status(const MapRows& rows)> map;
};

struct EncoderFigures {
  double product_flops = 0;
  double attention_flops = 0;  // in tiles that were not wholly masked
  double row_seconds = 0;      // norms, products, feed-forward part, outputs, a map among them
  double attention_seconds = 0;
  double exposed_exchange_seconds = 0;  // posting, and waiting with nothing to compute
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t memory_peak_bytes = 0;  // as allocated, without the model's weights
};

// Used by one thread at a time. It has threads of its own, as many as the device, or none.
class EncoderRank {
 public:
  // Plan and device outlive it; the model is shared with other jobs, which may outlive its place in
  // a cache, and has its weights in the device's memory; outputs are as of CheckOutputs.
  // FAILED_PRECONDITION on a GPU without products; RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<EncoderRank>> Make(
      std::shared_ptr<const EncoderModel> model, const EncoderPlan& plan, int rank, Device& device,
      const EncoderOutputs& outputs);
  virtual ~EncoderRank() = default;

  // Each tile once, in any order of calls, all of them rows of this rank. Of control, deadline,
  // cancelled and progress are used. OUT_OF_RANGE, naming row, value and range: a coordinate
  // outside of the grid. CANCELLED, DEADLINE_EXCEEDED.
  virtual absl::Status PlaceTiles(const JobTiles& tiles, const EncoderControl& control) = 0;

  // After all tiles of the rank are there; once. `communicator` may be null where the plan has no
  // exchange. Steps of the communicator are numbered from first_step; the next job on it starts at
  // first_step + StepsOf(plan). CANCELLED, DEADLINE_EXCEEDED, the communicator's errors and those
  // of control's calls; after any the communicator is to be aborted, since other ranks may wait.
  virtual absl::StatusOr<EncoderFigures> Run(Communicator* communicator, int64_t first_step,
                                             const EncoderControl& control) = 0;
};

}  // namespace hilbert_ring
