#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "engine/model/files/grid_positions.h"
#include "engine/model/rank_rows.h"
#include "engine/model/row_kernels.h"

namespace hilbert_ring {
namespace {

// The products of a block of `rows` rows, one for each shape of weights. Thread-safe.
struct BlockProducts {
  static absl::StatusOr<BlockProducts> Make(const EncoderModel& model, int64_t rows);

  int64_t rows = 0;
  int64_t scratch_bytes = 0;
  std::optional<RowProduct> projection;
  std::optional<RowProduct> to_attention;      // q, k, v: of the operand's storage type
  std::optional<RowProduct> square, fc1, fc2;  // results of float32
};

absl::StatusOr<BlockProducts> BlockProducts::Make(const EncoderModel& model, int64_t rows) {
  const EncoderConfig& config = model.config();
  const int64_t width = config.embed_dim, ffn = config.ffn_dim;
  BlockProducts products;
  products.rows = rows;
  const auto make = [&](std::optional<RowProduct>& product, int64_t out, int64_t in, DataType to) {
    ASSIGN_OR_RETURN(
        product, RowProduct::Make({.out = out, .in = in, .operand = model.operand()}, rows, to));
    products.scratch_bytes = std::max(products.scratch_bytes, product->scratch_bytes());
    return absl::OkStatus();
  };
  if (config.input_dim > 0) {
    RETURN_IF_ERROR(make(products.projection, width, config.input_dim, DataType::kFloat32));
  }
  RETURN_IF_ERROR(make(products.to_attention, width, width, StorageOf(model.operand())));
  RETURN_IF_ERROR(make(products.square, width, width, DataType::kFloat32));
  RETURN_IF_ERROR(make(products.fc1, ffn, width, DataType::kFloat32));
  RETURN_IF_ERROR(make(products.fc2, width, ffn, DataType::kFloat32));
  return products;
}

// A layer's row work on one block of dense rows. Each thread has one, whose buffers serve all
// layers.
class RowBlock {
 public:
  explicit RowBlock(const EncoderModel& model) : model_(model), kernels_(BestRowKernels()) {}

  // `products` is of the largest block. Errors: RESOURCE_EXHAUSTED.
  absl::Status Prepare(const BlockProducts& products, Device& device) {
    const EncoderConfig& config = model_.config();
    const int64_t element = ElementBytes(StorageOf(model_.operand()));
    ASSIGN_OR_RETURN(operand_, device.Allocate(products.rows * WidestOperand(config) * element));
    ASSIGN_OR_RETURN(result_, device.Allocate(products.rows * WidestResult(config) *
                                              static_cast<int64_t>(sizeof(float))));
    scratch_.resize(static_cast<size_t>(products.scratch_bytes));
    row_.resize(static_cast<size_t>(WidestOperand(config)));
    rounded_.resize(static_cast<size_t>(WidestOperand(config)));
    return absl::OkStatus();
  }

  int64_t bytes() const {
    return operand_->bytes() + result_->bytes() + static_cast<int64_t>(scratch_.size());
  }

  // Below, `products` is of exactly `rows` rows, except in Project, which allows more.

  // tiles: [rows, tile_dim]. Returns float32 [rows, embed_dim], valid until the next call.
  absl::StatusOr<const float*> Project(const BlockProducts& products, DataType dtype,
                                       const std::byte* tiles, int64_t rows);

  // x: float32 [rows, embed_dim]. q_k_v: of the compute type, [rows, embed_dim] each.
  absl::Status BeforeAttention(const BlockProducts& products, const EncoderLayer& layer,
                               const float* x, std::array<std::byte*, 3> q_k_v);

  // attention: of the compute type, [rows, embed_dim].
  absl::Status AfterAttention(const BlockProducts& products, const EncoderLayer& layer,
                              const std::byte* attention, float* x);

  // Valid until the next call.
  const float* Normed(const LayerNorm& norm, const float* x, int64_t rows);

 private:
  float* Result() { return reinterpret_cast<float*>(result_->data()); }
  std::byte* OperandRow(int64_t row, int64_t dim);
  void TakeAsOperand(const float* from, int64_t row, int64_t dim);
  void NormAsOperand(const LayerNorm& norm, const float* from, int64_t row);

  const EncoderModel& model_;
  const RowKernels& kernels_;
  std::unique_ptr<Buffer> operand_;  // of products
  std::unique_ptr<Buffer> result_;   // float32, of products
  std::vector<std::byte> scratch_;
  std::vector<float> row_;         // as wide as the widest operand
  std::vector<uint16_t> rounded_;  // as wide as the widest operand
};

std::byte* RowBlock::OperandRow(int64_t row, int64_t dim) {
  return operand_->data() + row * dim * ElementBytes(StorageOf(model_.operand()));
}

void RowBlock::TakeAsOperand(const float* from, int64_t row, int64_t dim) {
  std::byte* to = OperandRow(row, dim);
  switch (model_.operand()) {
    case Operand::kFloat32:
      std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
      break;
    case Operand::kBFloat16:
      kernels_.narrow(from, dim, DataType::kBFloat16, to);
      break;
    case Operand::kRoundedFloat32:
      kernels_.narrow(from, dim, DataType::kBFloat16, rounded_.data());
      kernels_.widen(DataType::kBFloat16, rounded_.data(), dim, reinterpret_cast<float*>(to));
      break;
  }
}

void RowBlock::NormAsOperand(const LayerNorm& norm, const float* from, int64_t row) {
  const int64_t dim = norm.dim();
  if (model_.operand() == Operand::kFloat32) {
    kernels_.norm(from, norm.view(), dim, reinterpret_cast<float*>(OperandRow(row, dim)));
    return;
  }
  kernels_.norm(from, norm.view(), dim, row_.data());
  TakeAsOperand(row_.data(), row, dim);
}

absl::StatusOr<const float*> RowBlock::Project(const BlockProducts& products, DataType dtype,
                                               const std::byte* tiles, int64_t rows) {
  const int64_t dim = model_.config().tile_dim();
  const int64_t row_bytes = dim * ElementBytes(dtype);
  float* const result = Result();
  if (!model_.weights().projection) {
    for (int64_t i = 0; i < rows; ++i) {
      kernels_.widen(dtype, tiles + i * row_bytes, dim, result + i * dim);
    }
    return result;
  }
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.widen(dtype, tiles + i * row_bytes, dim, row_.data());
    TakeAsOperand(row_.data(), i, dim);
  }
  // The product's rows beyond `rows` come from old data; nothing reads them.
  RETURN_IF_ERROR(products.projection->Run(*model_.weights().projection, operand_->data(), result,
                                           scratch_.data()));
  return result;
}

absl::Status RowBlock::BeforeAttention(const BlockProducts& products, const EncoderLayer& layer,
                                       const float* x, std::array<std::byte*, 3> q_k_v) {
  const int64_t width = model_.config().embed_dim, rows = products.rows;
  for (int64_t i = 0; i < rows; ++i) NormAsOperand(layer.attention_norm, x + i * width, i);
  const std::array<const PackedMatrix*, 3> weights{&layer.q, &layer.k, &layer.v};
  const bool direct = StorageOf(model_.operand()) == model_.compute();
  for (size_t i = 0; i < weights.size(); ++i) {
    std::byte* to = direct ? q_k_v[i] : result_->data();
    RETURN_IF_ERROR(products.to_attention->Run(*weights[i], operand_->data(), to, scratch_.data()));
    if (!direct) kernels_.narrow(Result(), rows * width, model_.compute(), q_k_v[i]);
  }
  return absl::OkStatus();
}

absl::Status RowBlock::AfterAttention(const BlockProducts& products, const EncoderLayer& layer,
                                      const std::byte* attention, float* x) {
  const int64_t width = model_.config().embed_dim, ffn = model_.config().ffn_dim;
  const int64_t rows = products.rows;
  const int64_t row_bytes = width * ElementBytes(model_.compute());
  float* const result = Result();
  const auto run = [&](const RowProduct& product, const PackedMatrix& weights) {
    return product.Run(weights, operand_->data(), result, scratch_.data());
  };
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.widen(model_.compute(), attention + i * row_bytes, width, row_.data());
    NormAsOperand(layer.inner_attention_norm, row_.data(), i);
  }
  RETURN_IF_ERROR(run(*products.square, layer.out));
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.add(result + i * width, x + i * width, width);
    NormAsOperand(layer.ffn_norm, x + i * width, i);
  }
  RETURN_IF_ERROR(run(*products.fc1, layer.fc1));
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.gelu(result + i * ffn, ffn);
    NormAsOperand(layer.inner_ffn_norm, result + i * ffn, i);
  }
  RETURN_IF_ERROR(run(*products.fc2, layer.fc2));
  for (int64_t i = 0; i < rows; ++i) kernels_.add(result + i * width, x + i * width, width);
  return absl::OkStatus();
}

const float* RowBlock::Normed(const LayerNorm& norm, const float* x, int64_t rows) {
  const int64_t width = norm.dim();
  float* const result = Result();
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.norm(x + i * width, norm.view(), width, result + i * width);
  }
  return result;
}

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
      row_blocks_.push_back(std::make_unique<RowBlock>(model_));
      RETURN_IF_ERROR(row_blocks_.back()->Prepare(*products_, device));
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

  absl::Status BeforeAttention(int thread, int64_t layer, ModelRows block,
                               std::array<std::byte*, 3> q_k_v) override {
    return row_blocks_[thread]->BeforeAttention(
        ProductsOf(block.count), model_.weights().layers[layer], Row(block.first), q_k_v);
  }

  absl::Status AfterAttention(int thread, int64_t layer, ModelRows block,
                              const std::byte* out) override {
    return row_blocks_[thread]->AfterAttention(
        ProductsOf(block.count), model_.weights().layers[layer], out, Row(block.first));
  }

  absl::StatusOr<const float*> OnHost(int thread, ModelRows rows, FinalNorm wanted) override {
    const float* const values = Row(rows.first);
    const LayerNorm* const norm = NormOf(wanted);
    return norm == nullptr ? values : row_blocks_[thread]->Normed(*norm, values, rows.count);
  }

  absl::Status AddSums(int /*thread*/, ModelRows rows, FinalNorm wanted, double* sums) override {
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
    return rows == products_->rows ? *products_ : *last_products_;
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
