#include "client/cpp/encode.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/cpp/connector.h"
#include "client/cpp/conversation.h"
#include "client/cpp/job_request.h"
#include "engine/base/return_if_error.h"
#include "engine/model/files/grid_positions.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

constexpr char kMethod[] = "/hilbert_ring.v1.EncoderService/Encode";

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kCoordinateBytes = 2 * sizeof(double);

constexpr int64_t kRowsCheckedAtOnce = 4096;

constexpr double kPlacesPerSide = 8;  // tiles may overlap by seven eighths of a side

// Checks a slide's coordinates. Normalized ones, or others in another unit, put many tiles on one
// place of the model's grid.
absl::Status CheckSlide(const EncodeInputs& inputs, size_t slide, int64_t first_tile) {
  const EncodeJob& job = inputs.job;
  const int64_t tiles = job.slide_tiles[slide];
  const int64_t tile_size = job.config.position->tile_size;
  const double places_per_pixel = kPlacesPerSide / static_cast<double>(tile_size);
  const auto place = [places_per_pixel](double pixels) {
    return static_cast<int64_t>(std::floor(pixels * places_per_pixel));
  };
  std::vector<int64_t> places;
  std::vector<double> values;
  for (int64_t tile = 0; tile < tiles; tile += kRowsCheckedAtOnce) {
    values.resize(static_cast<size_t>(2 * std::min(kRowsCheckedAtOnce, tiles - tile)));
    inputs.coordinates(first_tile + tile, values);
    RETURN_IF_ERROR(CheckCoordinates(*job.config.position, values, first_tile + tile));
    for (size_t i = 0; i < values.size(); i += 2) {
      places.push_back(place(values[i]) << 32 | place(values[i + 1]));
    }
  }
  std::ranges::sort(places);
  const auto distinct = std::distance(places.begin(), std::unique(places.begin(), places.end()));
  if (2 * distinct >= tiles) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "coords", job.slide_tiles.size() > 1 ? absl::StrCat(" of slide ", slide) : "", " has ",
      distinct, " distinct places, must have at least ", (tiles + 1) / 2, " for ", tiles,
      " tiles: coordinates that are normalised or in another unit lie too close for tiles of ",
      tile_size, " pixels"));
}

v1::Pooling PoolingOf(Pooling pooling) {
  switch (pooling) {
    case Pooling::kClass:
      return v1::POOLING_CLASS;
    case Pooling::kMean:
      return v1::POOLING_MEAN;
    case Pooling::kNone:
      break;
  }
  return v1::POOLING_NONE;
}

int64_t Product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

OutputTensor Output(v1::Tensor tensor, const std::vector<int64_t>& shape,
                    std::span<std::byte> data) {
  return {.tensor = tensor,
          .rows = shape.front(),
          .row_bytes = Product(shape) / shape.front() * kFloatBytes,
          .data = data,
          .shape = shape};
}

JobTensors TensorsOf(const EncodeInputs& inputs, const EncodeResults& results) {
  const EncodeJob& job = inputs.job;
  JobTensors tensors;
  if (job.config.position) {
    tensors.ahead = {{.tensor = v1::TENSOR_TILE_COORDS,
                      .rows = job.tiles(),
                      .row_bytes = kCoordinateBytes,
                      .read =
                          [&inputs](int64_t first_row, std::span<std::byte> to) {
                            // Aligned, because each chunk has its own memory.
                            inputs.coordinates(first_row, {reinterpret_cast<double*>(to.data()),
                                                           to.size() / sizeof(double)});
                          },
                      .shape = {job.tiles(), 2}}};
  }
  tensors.bands = {{.tensor = v1::TENSOR_TILES,
                    .rows = job.tiles(),
                    .row_bytes = job.config.tile_dim() * ElementBytes(job.dtype),
                    .bytes = inputs.tiles,
                    .type = job.dtype,
                    .shape = {job.tiles(), job.config.tile_dim()}}};
  const bool pooled = job.outputs.pooling != Pooling::kNone;
  tensors.outputs = {
      Output(pooled ? v1::TENSOR_POOLED : v1::TENSOR_STATES, job.RowsShape(), results.rows)};
  if (job.outputs.attention_map) {
    tensors.outputs.push_back(
        Output(v1::TENSOR_ATTENTION_MAP, job.MapShape(), results.attention_map));
  }
  if (inputs.sent) {
    tensors.sent = [&inputs](v1::Tensor tensor, int64_t begin, int64_t end) {
      if (tensor == v1::TENSOR_TILES) inputs.sent(begin, end);
    };
  }
  return tensors;
}

absl::Status CheckResults(const EncodeJob& job, const EncodeResults& results) {
  RETURN_IF_ERROR(
      CheckSize("rows", std::ssize(results.rows), Product(job.RowsShape()) * kFloatBytes));
  const int64_t map = job.outputs.attention_map ? Product(job.MapShape()) * kFloatBytes : 0;
  return CheckSize("attention_map", std::ssize(results.attention_map), map);
}

}  // namespace

JobRequest RequestOf(const EncodeInputs& inputs, const EncodeResults& results) {
  JobRequest request{
      .method = kMethod, .tensors = TensorsOf(inputs, results), .tokens = inputs.job.tokens()};
  *request.open.mutable_encode() = SpecOf(inputs.job);
  return request;
}

v1::EncodeSpec SpecOf(const EncodeJob& job) {
  v1::EncodeSpec spec;
  spec.set_model(job.model);
  spec.set_digest(job.digest);
  spec.mutable_slide_tiles()->Assign(job.slide_tiles.begin(), job.slide_tiles.end());
  spec.set_dtype(wire::EncodeDataType(job.dtype));
  spec.set_compute(wire::EncodeDataType(job.compute));
  spec.set_pooling(PoolingOf(job.outputs.pooling));
  spec.mutable_states()->Assign(job.outputs.states.begin(), job.outputs.states.end());
  spec.set_skip_final_norm(job.outputs.final_norm == FinalNorm::kSkipped);
  if (const auto& map = job.outputs.attention_map) {
    spec.set_attention_map_layer(map->layer);
    spec.set_attention_map_by_head(map->columns == MapColumns::kHeads);
  }
  return spec;
}

int64_t EncodeJob::tiles() const {
  return std::accumulate(slide_tiles.begin(), slide_tiles.end(), int64_t{0});
}

int64_t EncodeJob::tokens() const {
  return tiles() + (config.class_token ? std::ssize(slide_tiles) : 0);
}

std::vector<int64_t> EncodeJob::RowsShape() const {
  std::vector<int64_t> shape = {outputs.pooling == Pooling::kNone ? tokens()
                                                                  : std::ssize(slide_tiles)};
  if (outputs.states.size() > 1) shape.push_back(std::ssize(outputs.states));
  shape.push_back(config.embed_dim);
  return shape;
}

std::vector<int64_t> EncodeJob::MapShape() const {
  const int64_t columns = MapColumnsOf(config, outputs);
  if (outputs.attention_map && outputs.attention_map->columns == MapColumns::kHeads) {
    return {tokens(), columns};
  }
  return {tokens()};
}

absl::StatusOr<EncodeJob> JobOf(const v1::Model& model) {
  if (!model.error().empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the model cannot be used: ", model.error()));
  }
  const auto config = ParseEncoderConfig(model.config());
  if (!config.ok()) {
    return absl::InternalError(
        absl::StrCat("the config of model ", model.name(),
                     " is unknown to this client: ", config.status().message()));
  }
  return EncodeJob{.model = model.name(), .digest = model.digest(), .config = *config};
}

absl::Status CheckEncode(const EncodeInputs& inputs) {
  const EncodeJob& job = inputs.job;
  if (job.compute == DataType::kFloat16) {
    return absl::InvalidArgumentError("compute is float16, must be float32 or bfloat16");
  }
  RETURN_IF_ERROR(AttentionOf(job.config, job.compute, job.slide_tiles).status());
  RETURN_IF_ERROR(CheckOutputs(job.config, job.outputs));
  RETURN_IF_ERROR(CheckSize("tiles", std::ssize(inputs.tiles),
                            job.tiles() * job.config.tile_dim() * ElementBytes(job.dtype)));
  if (!job.config.position) return absl::OkStatus();
  if (!inputs.coordinates) {
    return absl::InvalidArgumentError(
        absl::StrCat("coords are missing: model ", job.model, " has positions"));
  }
  int64_t tile = 0;
  for (size_t slide = 0; slide < job.slide_tiles.size(); ++slide) {
    RETURN_IF_ERROR(CheckSlide(inputs, slide, tile));
    tile += job.slide_tiles[slide];
  }
  return absl::OkStatus();
}

absl::StatusOr<JobRequest> CheckedRequest(const EncodeInputs& inputs,
                                          const EncodeResults& results) {
  RETURN_IF_ERROR(CheckEncode(inputs));
  RETURN_IF_ERROR(CheckResults(inputs.job, results));
  return RequestOf(inputs, results);
}

absl::StatusOr<v1::Report> Encode(const std::string& server, const EncodeInputs& inputs,
                                  const EncodeResults& results, const JobOptions& options) {
  ASSIGN_OR_RETURN(const JobRequest request, CheckedRequest(inputs, results));
  return CallJob(server, request, options);
}

absl::StatusOr<v1::Report> Encode(const std::shared_ptr<grpc::Channel>& channel,
                                  const EncodeInputs& inputs, const EncodeResults& results,
                                  const JobOptions& options) {
  ASSIGN_OR_RETURN(const JobRequest request, CheckedRequest(inputs, results));
  Connector connector(channel);
  return CallJob(connector, request, options);
}

absl::StatusOr<v1::Report> EncodeInFiles(const std::string& server, const EncodeInputs& inputs,
                                         const std::vector<v1::TensorFile>& files,
                                         const EncodeResults& results, const JobOptions& options) {
  RETURN_IF_ERROR(CheckEncode(inputs));
  const JobRequest request = InFiles(RequestOf(inputs, results), files);
  for (const OutputTensor& output : request.tensors.outputs) {
    RETURN_IF_ERROR(CheckSize("a result that is in no file", std::ssize(output.data),
                              output.rows * output.row_bytes));
  }
  return CallJob(server, request, options);
}

}  // namespace hilbert_ring::client
