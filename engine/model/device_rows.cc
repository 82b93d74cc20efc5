#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/device/row_math.h"
#include "engine/model/device_weights.h"
#include "engine/model/files/device_block.h"
#include "engine/model/files/grid_positions.h"
#include "engine/model/rank_rows.h"

namespace hilbert_ring {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

// Products of tiles have a multiple of this many rows, so that few shapes are made.
constexpr int64_t kProjectedStep = 256;

int64_t RoundUp(int64_t number, int64_t step) { return (number + step - 1) / step * step; }

class DeviceRows : public RankRows {
 public:
  DeviceRows(const EncoderModel& model, const RowBlocks& blocks, Device& device)
      : model_(model),
        config_(model.config()),
        weights_(*model.device_weights()),
        blocks_(blocks),
        device_(device) {}

  absl::Status Prepare();

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const auto& buffer : buffers_) bytes += buffer->bytes();
    return bytes;
  }

  absl::Status PlaceClassTokens(std::span<const int64_t> rows) override;
  absl::Status PlaceTiles(int thread, const PlacedTiles& tiles) override;
  absl::Status BeforeAttention(int thread, int64_t layer, ModelRows block,
                               std::array<std::byte*, 3> q_k_v) override;
  absl::Status AfterAttention(int thread, int64_t layer, ModelRows block,
                              const std::byte* out) override;
  absl::StatusOr<const float*> OnHost(int thread, ModelRows rows, FinalNorm norm) override;
  absl::Status AddSums(int thread, ModelRows rows, FinalNorm norm, double* sums) override;

 private:
  int64_t width() const { return config_.embed_dim; }
  float* Row(int64_t row) const { return residual_ + row * width(); }

  // result_ = operand_ W^T; the next step adds the bias.
  ProductTask Product(const DeviceMatrix& matrix, int64_t rows) const {
    return {.dtype = model_.compute(),
            .rows = rows,
            .in = matrix.in,
            .out = matrix.out,
            .from = operand_,
            .weights = matrix.weights,
            .to = result_,
            .workspace = workspace_,
            .workspace_bytes = kProductWorkspaceBytes};
  }

  RowsTask Norm(const DeviceNorm& norm, int64_t rows, const void* from, DataType dtype) const {
    return {.rows = rows,
            .dim = width(),
            .from = from,
            .from_dtype = dtype,
            .from_stride = width(),
            .norm = norm,
            .to = operand_,
            .to_dtype = model_.compute()};
  }

  // A task that starts from y = result_ + bias.
  RowsTask OfResult(const DeviceMatrix& matrix, int64_t rows) const {
    return {.rows = rows,
            .dim = matrix.out,
            .from = result_,
            .from_stride = matrix.out,
            .bias = matrix.bias};
  }

  // Returns the rows after the final norm, in result_, or the residual if no norm applies.
  absl::StatusOr<const float*> Normed(ModelRows rows, FinalNorm norm);

  absl::Status Run(std::span<const ModelStep> steps, int64_t layer, const char* where) const {
    absl::Status status = math_->Run(steps);
    if (status.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrCat("layer ", layer + 1, ", ", where, ": ", status.message()));
  }

  const EncoderModel& model_;
  const EncoderConfig& config_;
  const DeviceWeights& weights_;
  const RowBlocks blocks_;
  Device& device_;
  RowMath* math_ = nullptr;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // hold all below
  float* residual_ = nullptr;                     // [rows, embed_dim]
  std::byte* operand_ = nullptr;                  // of products, of the compute type
  float* result_ = nullptr;                       // of products
  void* workspace_ = nullptr;
  int64_t* places_ = nullptr;      // [block]
  double* coords_ = nullptr;       // [block, 2], if the model has positions
  double* frequencies_ = nullptr;  // [embed_dim / 4], if the model has positions
  double* sums_ = nullptr;         // [embed_dim]
  std::vector<float> on_host_;
};

absl::Status DeviceRows::Prepare() {
  ASSIGN_OR_RETURN(math_, device_.row_math());
  const auto allocate = [&](auto*& data, int64_t bytes) {
    ASSIGN_OR_RETURN(auto buffer, device_.Allocate(bytes));
    data = reinterpret_cast<std::remove_reference_t<decltype(data)>>(buffer->data());
    buffers_.push_back(std::move(buffer));
    return absl::OkStatus();
  };
  const DeviceBlockBytes sizes = DeviceBlockBytesOf(config_, blocks_, model_.compute());
  RETURN_IF_ERROR(allocate(residual_, blocks_.rows * width() * kFloatBytes));
  RETURN_IF_ERROR(allocate(operand_, sizes.operand));
  RETURN_IF_ERROR(allocate(result_, sizes.result));
  std::byte* workspace = nullptr;
  RETURN_IF_ERROR(allocate(workspace, sizes.workspace));
  workspace_ = workspace;
  RETURN_IF_ERROR(allocate(places_, sizes.places));
  RETURN_IF_ERROR(allocate(coords_, sizes.coords));
  RETURN_IF_ERROR(allocate(frequencies_, sizes.frequencies));
  RETURN_IF_ERROR(allocate(sums_, sizes.sums));
  if (!config_.position) return absl::OkStatus();
  const std::vector<double> frequencies = GridFrequencies(width());
  return device_.CopyIn(frequencies_, frequencies.data(), sizes.frequencies);
}

// Uses only CopyRowsIn, which is safe while another thread computes on the device.
absl::Status DeviceRows::PlaceClassTokens(std::span<const int64_t> rows) {
  const std::vector<float>& token = model_.weights().class_token;
  std::vector<float> tokens;
  tokens.reserve(rows.size() * token.size());
  for (size_t i = 0; i < rows.size(); ++i) tokens.insert(tokens.end(), token.begin(), token.end());
  return device_.CopyRowsIn(
      {.to = residual_, .from = tokens.data(), .rows = rows, .row_bytes = width() * kFloatBytes});
}

absl::Status DeviceRows::PlaceTiles(int /*thread*/, const PlacedTiles& tiles) {
  const int64_t rows = std::ssize(tiles.rows);
  RETURN_IF_ERROR(
      device_.CopyIn(places_, tiles.rows.data(), rows * static_cast<int64_t>(sizeof(int64_t))));
  if (config_.position) {
    RETURN_IF_ERROR(device_.CopyIn(coords_, tiles.coords.data(),
                                   2 * rows * static_cast<int64_t>(sizeof(double))));
  }
  std::vector<ModelStep> steps;
  PlaceTask place{.rows = rows,
                  .dim = width(),
                  .from = tiles.values,
                  .from_dtype = tiles.dtype,
                  .places = places_,
                  .to = residual_};
  if (config_.position) {
    place.coords = coords_;
    place.frequencies = frequencies_;
    place.tile_size = static_cast<double>(config_.position->tile_size);
  }
  if (config_.input_dim > 0) {
    steps.emplace_back(RowsTask{.rows = rows,
                                .dim = config_.input_dim,
                                .from = tiles.values,
                                .from_dtype = tiles.dtype,
                                .from_stride = config_.input_dim,
                                .to = operand_,
                                .to_dtype = model_.compute()});
    // The product's rows beyond `rows` come from old data; nothing reads them.
    steps.emplace_back(
        Product(weights_.projection(), std::min(blocks_.block, RoundUp(rows, kProjectedStep))));
    place.from = result_;
    place.from_dtype = DataType::kFloat32;
    place.bias = weights_.projection().bias;
  }
  steps.emplace_back(place);
  return Run(steps, -1, "placing tiles");
}

absl::Status DeviceRows::BeforeAttention(int /*thread*/, int64_t layer, ModelRows block,
                                         std::array<std::byte*, 3> q_k_v) {
  const DeviceLayer& weights = weights_.layers()[layer];
  std::vector<ModelStep> steps{
      Norm(weights.attention_norm, block.count, Row(block.first), DataType::kFloat32),
      Product(weights.q_k_v, block.count)};
  for (size_t i = 0; i < q_k_v.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) * width();
    RowsTask part = OfResult(weights.q_k_v, block.count);
    part.dim = width();
    part.from = result_ + column;
    part.bias += column;
    part.to = q_k_v[i];
    part.to_dtype = model_.compute();
    steps.emplace_back(part);
  }
  return Run(steps, layer, "before its attention");
}

absl::Status DeviceRows::AfterAttention(int /*thread*/, int64_t layer, ModelRows block,
                                        const std::byte* out) {
  const DeviceLayer& weights = weights_.layers()[layer];
  RowsTask attended = OfResult(weights.out, block.count);
  attended.residual = Row(block.first);
  attended.norm = weights.ffn_norm;
  attended.to = operand_;
  attended.to_dtype = model_.compute();
  RowsTask activated = OfResult(weights.fc1, block.count);
  activated.activation = Activation::kGelu;
  activated.norm = weights.inner_ffn_norm;
  activated.to = operand_;
  activated.to_dtype = model_.compute();
  RowsTask added = OfResult(weights.fc2, block.count);
  added.residual = Row(block.first);
  const std::vector<ModelStep> steps{
      Norm(weights.inner_attention_norm, block.count, out, model_.compute()),
      Product(weights.out, block.count),
      attended,
      Product(weights.fc1, block.count),
      activated,
      Product(weights.fc2, block.count),
      added};
  return Run(steps, layer, "after its attention");
}

absl::StatusOr<const float*> DeviceRows::Normed(ModelRows rows, FinalNorm norm) {
  if (norm == FinalNorm::kSkipped || !config_.output_norm) return Row(rows.first);
  RowsTask task = Norm(weights_.output_norm(), rows.count, Row(rows.first), DataType::kFloat32);
  task.to = result_;
  task.to_dtype = DataType::kFloat32;
  const ModelStep step = task;
  RETURN_IF_ERROR(Run({&step, 1}, config_.layers - 1, "the final norm"));
  return result_;
}

absl::StatusOr<const float*> DeviceRows::OnHost(int /*thread*/, ModelRows rows, FinalNorm norm) {
  ASSIGN_OR_RETURN(const float* const from, Normed(rows, norm));
  const int64_t count = rows.count * width();
  on_host_.resize(static_cast<size_t>(std::max<int64_t>(count, std::ssize(on_host_))));
  RETURN_IF_ERROR(device_.CopyOut(on_host_.data(), from, count * kFloatBytes));
  return on_host_.data();
}

absl::Status DeviceRows::AddSums(int /*thread*/, ModelRows rows, FinalNorm norm, double* sums) {
  const int64_t bytes = width() * static_cast<int64_t>(sizeof(double));
  RETURN_IF_ERROR(device_.CopyIn(sums_, sums, bytes));
  for (int64_t done = 0; done < rows.count;) {  // a block may have fewer rows than are summed
    const ModelRows part{.first = rows.first + done,
                         .count = std::min(blocks_.block, rows.count - done)};
    ASSIGN_OR_RETURN(const float* const from, Normed(part, norm));
    const ModelStep step = SumTask{.rows = part.count, .dim = width(), .from = from, .to = sums_};
    RETURN_IF_ERROR(Run({&step, 1}, config_.layers - 1, "pooling"));
    done += part.count;
  }
  return device_.CopyOut(sums, sums_, bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankRows>> MakeDeviceRows(const EncoderModel& model,
                                                         const RowBlocks& blocks, Device& device) {
  auto rows = std::make_unique<DeviceRows>(model, blocks, device);
  RETURN_IF_ERROR(rows->Prepare());
  return rows;
}

}  // namespace hilbert_ring
