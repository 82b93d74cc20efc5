// A rank's rows between two attentions: the residual, and the layers' row operations by blocks.
// Threads of a pool share the blocks of a CPU. A GPU computes one block at a time in its memory.
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

inline constexpr int64_t kPooledPieceRows = 1024;

// Local rows [first, first + count) of the rank.
struct ModelRows {
  int64_t first = 0, count = 0;
};

struct PlacedTiles {
  DataType dtype = DataType::kFloat32;
  const std::byte* values = nullptr;  // [rows.size(), tile_dim], memory of the device
  std::span<const int64_t> rows;      // local rows
  std::span<const double> coords;     // [rows.size(), 2] if the model has positions
};

// Threads may call at once with different rows and thread numbers.
class RankRows {
 public:
  virtual ~RankRows() = default;

  virtual int64_t bytes() const = 0;

  virtual absl::Status PlaceClassTokens(std::span<const int64_t> rows) = 0;

  // `tiles` has at most a block's rows, with coordinates within the grid.
  virtual absl::Status PlaceTiles(int thread, const PlacedTiles& tiles) = 0;

  // Rows of q, k, v and out are of the compute type, in device memory: [block.count, embed_dim].
  virtual absl::Status BeforeAttention(int thread, int64_t layer, ModelRows block,
                                       std::array<std::byte*, 3> q_k_v) = 0;
  virtual absl::Status AfterAttention(int thread, int64_t layer, ModelRows block,
                                      const std::byte* out) = 0;

  // Returns rows in host memory, [rows.count, embed_dim], after the norm if it is applied. The
  // memory is valid until the thread's next call.
  virtual absl::StatusOr<const float*> OnHost(int thread, ModelRows rows, FinalNorm norm) = 0;

  // Adds the rows to sums, [embed_dim], after the norm if it is applied. At most kPooledPieceRows
  // rows.
  virtual absl::Status AddSums(int thread, ModelRows rows, FinalNorm norm, double* sums) = 0;
};

// Model and device outlive the rows. Errors: RESOURCE_EXHAUSTED, INTERNAL (oneDNN).
absl::StatusOr<std::unique_ptr<RankRows>> MakeHostRows(const EncoderModel& model,
                                                       const RowBlocks& blocks, int threads,
                                                       Device& device);

// Model and device outlive the rows. A single thread calls them. Errors: those of Device::row_math
// and its memory; later errors name the layer.
absl::StatusOr<std::unique_ptr<RankRows>> MakeDeviceRows(const EncoderModel& model,
                                                         const RowBlocks& blocks, Device& device);

}  // namespace hilbert_ring
