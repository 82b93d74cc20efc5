// The rows of a rank between two attentions: where the residual lies, and all that layers do to it,
// block by block. On a CPU they lie in host memory and the threads of a pool have a block each; on
// a GPU they lie in its memory, and one block at a time is computed there.
//
//   ASSIGN_OR_RETURN(auto rows, MakeHostRows(model, blocks, threads, device));   // all its memory
//   rows->PlaceClassTokens(...), rows->PlaceTiles(thread, tiles)                 // the residual
//   rows->BeforeAttention(thread, layer, block, q_k_v);
//   ... attention over all rows of all ranks ...
//   rows->AfterAttention(thread, layer, block, out);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/model/encoder_model.h"
#include "engine/model/files/encoder_plan.h"
#include "engine/model/files/pooling.h"

namespace hilbert_ring {

// Rows of a slide that are summed together.
inline constexpr int64_t kPooledPieceRows = 1024;

// Local rows [first, first + count) of the rank.
struct ModelRows {
  int64_t first = 0, count = 0;
};

struct PlacedTiles {
  DataType dtype = DataType::kFloat32;
  const std::byte* values = nullptr;  // [rows.size(), tile_dim], memory of the device
  std::span<const int64_t> rows;      // local rows
  std::span<const double> coords;     // [rows.size(), 2] where the model has positions
};

// Calls of different threads may run at once, on rows of their own.
class RankRows {
 public:
  virtual ~RankRows() = default;

  // Memory of the device that it has.
  virtual int64_t bytes() const = 0;

  virtual absl::Status PlaceClassTokens(std::span<const int64_t> rows) = 0;

  // At most as many as a block has. Coordinates are within the grid.
  virtual absl::Status PlaceTiles(int thread, const PlacedTiles& tiles) = 0;

  // Of one of the blocks. Rows of q, k, v and out are of the compute type, memory of the device,
  // [block.count, embed_dim].
  virtual absl::Status BeforeAttention(int thread, int64_t layer, ModelRows block,
                                       std::array<std::byte*, 3> q_k_v) = 0;
  virtual absl::Status AfterAttention(int thread, int64_t layer, ModelRows block,
                                      const std::byte* out) = 0;

  // Rows of a block in host memory, behind the final norm where it is applied and the model has
  // one: [rows.count, embed_dim], valid until the thread's next call.
  virtual absl::StatusOr<const float*> OnHost(int thread, ModelRows rows, FinalNorm norm) = 0;

  // sums [embed_dim] += the rows, behind that norm, in float64. At most kPooledPieceRows of them.
  virtual absl::Status AddSums(int thread, ModelRows rows, FinalNorm norm, double* sums) = 0;
};

// Of a model in host memory, for so many threads of a device whose memory is the host's. Model and
// device outlive it. RESOURCE_EXHAUSTED without memory, INTERNAL where oneDNN fails.
absl::StatusOr<std::unique_ptr<RankRows>> MakeHostRows(const EncoderModel& model,
                                                       const RowBlocks& blocks, int threads,
                                                       Device& device);

// Of a model in the device's memory, for one thread. Model and device outlive it. Errors of
// Device::row_math and of its memory; those of calls name the layer.
absl::StatusOr<std::unique_ptr<RankRows>> MakeDeviceRows(const EncoderModel& model,
                                                         const RowBlocks& blocks, Device& device);

}  // namespace hilbert_ring
