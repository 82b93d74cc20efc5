#include "engine/model/row_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/return_if_error.h"
#include "engine/model/files/encoder_plan.h"

namespace hilbert_ring {
namespace {

float* Floats(Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

}  // namespace

absl::StatusOr<BlockProducts> BlockProducts::Make(const EncoderModel& model, int64_t rows) {
  const EncoderConfig& config = model.config();
  const int64_t width = config.embed_dim, ffn = config.ffn_dim;
  BlockProducts products;
  products.rows_ = rows;
  const auto make = [&](std::optional<RowProduct>& product, int64_t out, int64_t in, DataType to) {
    ASSIGN_OR_RETURN(
        product, RowProduct::Make({.out = out, .in = in, .operand = model.operand()}, rows, to));
    products.scratch_bytes_ = std::max(products.scratch_bytes_, product->scratch_bytes());
    return absl::OkStatus();
  };
  if (config.input_dim > 0) {
    RETURN_IF_ERROR(make(products.projection_, width, config.input_dim, DataType::kFloat32));
  }
  RETURN_IF_ERROR(make(products.to_attention_, width, width, StorageOf(model.operand())));
  RETURN_IF_ERROR(make(products.square_, width, width, DataType::kFloat32));
  RETURN_IF_ERROR(make(products.fc1_, ffn, width, DataType::kFloat32));
  RETURN_IF_ERROR(make(products.fc2_, width, ffn, DataType::kFloat32));
  return products;
}

absl::StatusOr<std::unique_ptr<RowBlock>> RowBlock::Make(const EncoderModel& model,
                                                         const BlockProducts& products,
                                                         Device& device) {
  const EncoderConfig& config = model.config();
  std::unique_ptr<RowBlock> block(new RowBlock(model));
  const int64_t element = ElementBytes(StorageOf(model.operand()));
  ASSIGN_OR_RETURN(block->operand_,
                   device.Allocate(products.rows() * WidestOperand(config) * element));
  ASSIGN_OR_RETURN(block->result_, device.Allocate(products.rows() * WidestResult(config) *
                                                   static_cast<int64_t>(sizeof(float))));
  block->scratch_.resize(static_cast<size_t>(products.scratch_bytes()));
  block->row_.resize(static_cast<size_t>(WidestOperand(config)));
  block->rounded_.resize(static_cast<size_t>(WidestOperand(config)));
  return block;
}

int64_t RowBlock::bytes() const {
  return operand_->bytes() + result_->bytes() + static_cast<int64_t>(scratch_.size());
}

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
  float* result = Floats(*result_);
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
  // Rows of the block that the call does not bring hold what they held before.
  RETURN_IF_ERROR(products.projection_->Run(*model_.weights().projection, operand_->data(), result,
                                            scratch_.data()));
  return result;
}

absl::Status RowBlock::BeforeAttention(const BlockProducts& products, const EncoderLayer& layer,
                                       const float* x, std::array<std::byte*, 3> q_k_v) {
  const int64_t width = model_.config().embed_dim, rows = products.rows();
  for (int64_t i = 0; i < rows; ++i) NormAsOperand(layer.attention_norm, x + i * width, i);
  const std::array<const PackedMatrix*, 3> weights{&layer.q, &layer.k, &layer.v};
  const bool direct = StorageOf(model_.operand()) == model_.compute();
  for (size_t i = 0; i < weights.size(); ++i) {
    std::byte* to = direct ? q_k_v[i] : result_->data();
    RETURN_IF_ERROR(
        products.to_attention_->Run(*weights[i], operand_->data(), to, scratch_.data()));
    if (!direct) kernels_.narrow(Floats(*result_), rows * width, model_.compute(), q_k_v[i]);
  }
  return absl::OkStatus();
}

absl::Status RowBlock::AfterAttention(const BlockProducts& products, const EncoderLayer& layer,
                                      const std::byte* attention, float* x) {
  const int64_t width = model_.config().embed_dim, ffn = model_.config().ffn_dim;
  const int64_t rows = products.rows();
  const int64_t row_bytes = width * ElementBytes(model_.compute());
  float* result = Floats(*result_);
  const auto run = [&](const RowProduct& product, const PackedMatrix& weights) {
    return product.Run(weights, operand_->data(), result, scratch_.data());
  };
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.widen(model_.compute(), attention + i * row_bytes, width, row_.data());
    NormAsOperand(layer.inner_attention_norm, row_.data(), i);
  }
  RETURN_IF_ERROR(run(*products.square_, layer.out));
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.add(result + i * width, x + i * width, width);
    NormAsOperand(layer.ffn_norm, x + i * width, i);
  }
  RETURN_IF_ERROR(run(*products.fc1_, layer.fc1));
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.gelu(result + i * ffn, ffn);
    NormAsOperand(layer.inner_ffn_norm, result + i * ffn, i);
  }
  RETURN_IF_ERROR(run(*products.fc2_, layer.fc2));
  for (int64_t i = 0; i < rows; ++i) kernels_.add(result + i * width, x + i * width, width);
  return absl::OkStatus();
}

const float* RowBlock::Normed(const LayerNorm& norm, const float* x, int64_t rows) {
  const int64_t width = norm.dim();
  float* result = Floats(*result_);
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.norm(x + i * width, norm.view(), width, result + i * width);
  }
  return result;
}

}  // namespace hilbert_ring
