// A rank's part of an encoder's job: tiles enter, pass all layers, and leave as states or pooled
// parts.
//
//   auto plan = MakeEncoderPlan(model->config(), model->compute(), {9999, 40}, ranks).value();
//   auto rank = EncoderRank::Make(model, plan, 2, device, outputs).value();    // all its memory
//   rank->PlaceTiles(tiles, control);                        // until all of its tiles are there
//   auto figures = rank->Run(communicator, 0, control);      // outputs leave by control's calls
//
// Only attention crosses rows and uses the plan's exchange. The pool's threads, or a GPU, compute
// all else block by block (rank_rows.h). The host computes attention maps from keys.
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
  std::span<const double> coords;  // [count, 2] pixels; empty without positions
};

// Rows of a requested state: tokens [first_token, first_token + rows) of the job.
struct StateRows {
  int64_t state = 0;
  int64_t first_token = 0;
  int64_t rows = 0;
  const float* values = nullptr;  // [rows, embed_dim], valid during the call
};

// Rows of the attention map: tokens as in StateRows.
struct MapRows {
  int64_t first_token = 0;
  int64_t rows = 0;
  const float* values = nullptr;  // [rows, 1 or heads], valid during the call
};

struct EncoderControl {
  // Called as in ExecuteControl, and between blocks of rows or tiles.
  std::function<Deadline()> deadline;
  std::function<bool()> cancelled;
  std::function<void(double fraction)> progress;  // of the rank's multiplications; any thread
  // Called as in ExecuteControl. Steps rise from layer to layer; a map's step follows its layer's.
  std::function<void(int64_t step)> waiting;
  std::function<void(int64_t layer)> layer;  // from 1, once computed; the calling thread
  // Spans as in ExecuteControl, of each layer's attention (from 1) with steps from 1; a map's wait
  // has the step after the last.
  std::function<void(int64_t layer, SpanKind kind, int64_t step, Deadline begin, Deadline end)>
      attention_span;
  // Spans of row work from a layer's attention to the next one's; layer 0: before the first.
  std::function<void(int64_t layer, Deadline begin, Deadline end)> rows_span;

  // With Pooling::kNone: receives every row of every requested state once, from any thread.
  std::function<absl::Status(const StateRows& rows)> rows;
  // With pooling: receives the rank's part of each requested state in order, in the calling thread.
  std::function<absl::Status(int64_t state, const PooledPart& part)> pooled;
  // With an attention map: receives every row of it once, from any thread.
  std::function<absl::Status(const MapRows& rows)> map;
};

struct EncoderFigures {
  double product_flops = 0;
  double attention_flops = 0;  // in tiles that were not wholly masked
  double row_seconds = 0;      // all but attention: norms, products, feed-forward, outputs, maps
  double attention_seconds = 0;
  double exposed_exchange_seconds = 0;  // posting, and waits without computing
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t memory_peak_bytes = 0;  // as allocated, without the model's weights
};

// Used by one thread at a time. Starts up to as many threads as the device has.
class EncoderRank {
 public:
  // Plan and device outlive the rank. The model's weights lie in the device's memory. CheckOutputs
  // accepts `outputs`. Errors: FAILED_PRECONDITION (a GPU without products), RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<EncoderRank>> Make(
      std::shared_ptr<const EncoderModel> model, const EncoderPlan& plan, int rank, Device& device,
      const EncoderOutputs& outputs);
  virtual ~EncoderRank() = default;

  // Takes each tile of this rank once, in any order. Uses control's deadline, cancelled and
  // progress. Errors: OUT_OF_RANGE (a coordinate outside the grid), CANCELLED, DEADLINE_EXCEEDED.
  virtual absl::Status PlaceTiles(const JobTiles& tiles, const EncoderControl& control) = 0;

  // Runs once, after all tiles of the rank. `communicator` may be null if the plan exchanges
  // nothing. The next job on it starts at first_step + StepsOf(plan). After an error the caller
  // aborts the communicator, because other ranks may wait.
  virtual absl::StatusOr<EncoderFigures> Run(Communicator* communicator, int64_t first_step,
                                             const EncoderControl& control) = 0;
};

}  // namespace hilbert_ring
