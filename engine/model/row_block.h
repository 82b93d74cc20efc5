// A layer of an encoder on a block of rows, but for its attention: each thread has one of these,
// with buffers that all layers share.
//
//   RowBlock block(model, products);
//   block.Project(tiles, rows, x);                   // x = patch projection of tiles
//   block.BeforeAttention(layer, x, rows, q_k_v);    // q, k, v = projections of norm(x)
//   ... attention over all rows of all ranks ...
//   block.AfterAttention(layer, out, rows, x);       // x += ...; x += feed-forward of norm(x)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/model/encoder_model.h"
#include "engine/model/row_kernels.h"

namespace hilbert_ring {

// The products of a block of so many rows, one for each shape of weights. Thread-safe.
class BlockProducts {
 public:
  static absl::StatusOr<BlockProducts> Make(const EncoderModel& model, int64_t rows);

  int64_t rows() const { return rows_; }
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  friend class RowBlock;
  BlockProducts() = default;

  int64_t rows_ = 0;
  int64_t scratch_bytes_ = 0;
  std::optional<RowProduct> projection_;
  std::optional<RowProduct> to_attention_;  // q, k, v: results of the attention's type if it can
  std::optional<RowProduct> square_, fc1_, fc2_;  // results of float32
};

// Used by one thread. Rows are dense.
class RowBlock {
 public:
  // products: of the most rows that a call brings, whose scratch is the greatest. The device and
  // the model outlive it. RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<RowBlock>> Make(const EncoderModel& model,
                                                        const BlockProducts& products,
                                                        Device& device);

  int64_t bytes() const;

  // `products` of all calls: of exactly `rows` rows, or more for Project alone.

  // tiles: of `dtype`, [rows, tile_dim]. Returns float32 [rows, embed_dim], valid until the next
  // call.
  absl::StatusOr<const float*> Project(const BlockProducts& products, DataType dtype,
                                       const std::byte* tiles, int64_t rows);

  // x: float32 [rows, embed_dim]. q_k_v: of the compute type, [rows, embed_dim] each.
  absl::Status BeforeAttention(const BlockProducts& products, const EncoderLayer& layer,
                               const float* x, std::array<std::byte*, 3> q_k_v);

  // attention: of the compute type, [rows, embed_dim].
  absl::Status AfterAttention(const BlockProducts& products, const EncoderLayer& layer,
                              const std::byte* attention, float* x);

  // The rows after a norm, valid until the next call.
  const float* Normed(const LayerNorm& norm, const float* x, int64_t rows);

 private:
  RowBlock(const EncoderModel& model) : model_(model), kernels_(BestRowKernels()) {}

  std::byte* OperandRow(int64_t row, int64_t dim);
  void TakeAsOperand(const float* from, int64_t row, int64_t dim);
  void NormAsOperand(const LayerNorm& norm, const float* from, int64_t row);

  const EncoderModel& model_;
  const RowKernels& kernels_;
  std::unique_ptr<Buffer> operand_;  // what a product reads
  std::unique_ptr<Buffer> result_;   // float32 that a product writes
  std::vector<std::byte> scratch_;
  std::vector<float> row_;         // of the widest operand
  std::vector<uint16_t> rounded_;  // likewise
};

}  // namespace hilbert_ring
