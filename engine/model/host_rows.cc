#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "engine/model/files/grid_positions.h"
#include "engine/model/rank_rows.h"
#include "engine/model/row_block.h"
#include "engine/model/row_kernels.h"

namespace hilbert_ring {
namespace {

class HostRows : public RankRows {
 public:
  HostRows(const EncoderModel& model, const RowBlocks& blocks)
      : model_(model), blocks_(blocks), kernels_(BestRowKernels()) {}

  absl::Status Prepare(int threads, Device& device) {
    ASSIGN_OR_RETURN(residual_,
                     device.Allocate(blocks_.rows * width() * static_cast<int64_t>(sizeof(float))));
    ASSIGN_OR_RETURN(products_, BlockProducts::Make(model_, blocks_.block));
    if (const int64_t last = blocks_.rows % blocks_.block; last > 0) {
      ASSIGN_OR_RETURN(last_products_, BlockProducts::Make(model_, last));
    }
    for (int thread = 0; thread < threads; ++thread) {
      ASSIGN_OR_RETURN(auto block, RowBlock::Make(model_, *products_, device));
      row_blocks_.push_back(std::move(block));
    }
    const EncoderConfig& config = model_.config();
    if (config.position) positions_.emplace(*config.position, width());
    return absl::OkStatus();
  }

  int64_t bytes() const override {
    int64_t bytes = residual_->bytes();
    for (const auto& block : row_blocks_) bytes += block->bytes();
    return bytes;
  }

  absl::Status PlaceClassTokens(std::span<const int64_t> rows) override {
    for (const int64_t row : rows) std::ranges::copy(model_.weights().class_token, Row(row));
    return absl::OkStatus();
  }

  absl::Status PlaceTiles(int thread, const PlacedTiles& tiles) override {
    ASSIGN_OR_RETURN(const float* const projected,
                     row_blocks_[thread]->Project(*products_, tiles.dtype, tiles.values,
                                                  std::ssize(tiles.rows)));
    for (int64_t i = 0; i < std::ssize(tiles.rows); ++i) {
      const std::span<float> row(Row(tiles.rows[i]), static_cast<size_t>(width()));
      std::copy_n(projected + i * width(), width(), row.begin());
      if (positions_) positions_->AddTo(tiles.coords[2 * i], tiles.coords[2 * i + 1], row);
    }
    return absl::OkStatus();
  }

  absl::Status BeforeAttention(int thread, int64_t layer, RowSpan block,
                               std::array<std::byte*, 3> q_k_v) override {
    return row_blocks_[thread]->BeforeAttention(
        ProductsOf(block.count), model_.weights().layers[layer], Row(block.first), q_k_v);
  }

  absl::Status AfterAttention(int thread, int64_t layer, RowSpan block,
                              const std::byte* out) override {
    return row_blocks_[thread]->AfterAttention(
        ProductsOf(block.count), model_.weights().layers[layer], out, Row(block.first));
  }

  absl::StatusOr<const float*> OnHost(int thread, RowSpan rows, FinalNorm wanted) override {
    const float* const values = Row(rows.first);
    const LayerNorm* const norm = NormOf(wanted);
    return norm == nullptr ? values : row_blocks_[thread]->Normed(*norm, values, rows.count);
  }

  absl::Status AddSums(int /*thread*/, RowSpan rows, FinalNorm wanted, double* sums) override {
    const LayerNorm* const norm = NormOf(wanted);
    std::vector<float> normed(norm == nullptr ? 0 : width());
    for (int64_t i = 0; i < rows.count; ++i) {
      const float* row = Row(rows.first + i);
      if (norm != nullptr) {
        kernels_.norm(row, norm->view(), width(), normed.data());
        row = normed.data();
      }
      for (int64_t x = 0; x < width(); ++x) sums[x] += row[x];
    }
    return absl::OkStatus();
  }

 private:
  int64_t width() const { return model_.config().embed_dim; }
  float* Row(int64_t row) { return reinterpret_cast<float*>(residual_->data()) + row * width(); }
  const LayerNorm* NormOf(FinalNorm wanted) const {
    const auto& norm = model_.weights().output_norm;
    return wanted == FinalNorm::kApplied && norm ? &*norm : nullptr;
  }
  const BlockProducts& ProductsOf(int64_t rows) const {
    return rows == products_->rows() ? *products_ : *last_products_;
  }

  const EncoderModel& model_;
  const RowBlocks blocks_;
  const RowKernels& kernels_;
  std::unique_ptr<Buffer> residual_;  // float32 [rows, embed_dim]
  std::optional<BlockProducts> products_, last_products_;
  std::vector<std::unique_ptr<RowBlock>> row_blocks_;  // [threads]
  std::optional<GridEmbedding> positions_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankRows>> MakeHostRows(const EncoderModel& model,
                                                       const RowBlocks& blocks, int threads,
                                                       Device& device) {
  auto rows = std::make_unique<HostRows>(model, blocks);
  RETURN_IF_ERROR(rows->Prepare(threads, device));
  return rows;
}

}  // namespace hilbert_ring
