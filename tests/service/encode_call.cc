#include "tests/service/encode_call.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/service/raw_call.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

template <typename T>
void AddChunks(v1::Tensor tensor, const std::vector<T>& values, int64_t tiles, int64_t chunk_rows,
               std::vector<v1::Chunk>& chunks) {
  if (values.empty()) return;
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  const int64_t row_bytes = std::ssize(bytes) / tiles;
  for (int64_t first = 0; first < tiles; first += chunk_rows) {
    chunks.push_back(
        MakeChunk(tensor, bytes, row_bytes, first, std::min(chunk_rows, tiles - first)));
  }
}

using Rows = std::map<int64_t, std::vector<float>>;

absl::Status Place(const v1::OutputChunk& chunk, std::map<v1::Tensor, Rows>& outputs) {
  if (wire::Crc32c(chunk.payload()) != chunk.crc32c()) return absl::DataLossError("checksum");
  const auto bytes = std::ssize(chunk.payload());
  if (chunk.rows() < 1 || !chunk.tokens().empty() || bytes % (4 * chunk.rows()) != 0) {
    return absl::InternalError("output chunk is misshapen");
  }
  const int64_t width = bytes / 4 / chunk.rows();
  for (int64_t i = 0; i < chunk.rows(); ++i) {
    std::vector<float> row(width);
    std::memcpy(row.data(), chunk.payload().data() + i * width * 4, width * 4);
    const int64_t number = chunk.first_token() + i;
    if (!outputs[chunk.tensor()].try_emplace(number, std::move(row)).second) {
      return absl::InternalError(absl::StrCat("row ", number, " came twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

v1::EncodeSpec SpecOf(const std::string& model, const std::vector<int64_t>& slide_tiles,
                      v1::Pooling pooling) {
  v1::EncodeSpec spec;
  spec.set_model(model);
  spec.mutable_slide_tiles()->Assign(slide_tiles.begin(), slide_tiles.end());
  spec.set_dtype(v1::DATA_TYPE_FLOAT32);
  spec.set_compute(v1::DATA_TYPE_FLOAT32);
  spec.set_pooling(pooling);
  return spec;
}

EncodeInputs ManyTiles(const EncoderCase& golden, int64_t tiles, uint64_t seed) {
  EncodeInputs inputs{.count = tiles};
  std::mt19937_64 random(seed);
  std::normal_distribution<float> value;
  int64_t golden_tiles = 0;
  for (const int64_t of_slide : golden.slide_tiles) golden_tiles += of_slide;
  const int64_t dim = std::ssize(golden.tiles) / golden_tiles;
  for (int64_t i = 0; i < tiles * dim; ++i) inputs.tiles.push_back(value(random));
  if (golden.coords.empty()) return inputs;
  std::uniform_real_distribution<double> pixels(0, *std::ranges::max_element(golden.coords));
  for (int64_t i = 0; i < 2 * tiles; ++i) inputs.coords.push_back(pixels(random));
  return inputs;
}

absl::StatusOr<EncodeResult> EncodeRaw(const std::shared_ptr<grpc::Channel>& channel,
                                       const v1::EncodeSpec& spec, const EncodeInputs& inputs,
                                       const EncodeOptions& options) {
  std::vector<v1::Chunk> chunks;
  if (options.files.empty()) {
    AddChunks(v1::TENSOR_TILES, inputs.tiles, inputs.count, options.chunk_rows, chunks);
    AddChunks(v1::TENSOR_TILE_COORDS, inputs.coords, inputs.count, options.chunk_rows, chunks);
  }
  std::mt19937_64 random(options.seed);
  std::shuffle(chunks.begin(), chunks.end(), random);

  const auto stub = v1::EncoderService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options.limit);
  context.set_wait_for_ready(true);
  const auto stream = stub->Encode(&context);
  v1::AttendRequest request;
  *request.mutable_open()->mutable_encode() = spec;
  request.mutable_open()->set_want_trace(options.want_trace);
  request.mutable_open()->mutable_files()->Assign(options.files.begin(), options.files.end());
  bool going = stream->Write(request);
  for (const v1::Chunk& chunk : chunks) {
    *request.mutable_chunk() = chunk;
    going = going && stream->Write(request);
  }
  if (going) stream->WritesDone();
  EncodeResult result;
  std::map<v1::Tensor, Rows> outputs;
  v1::AttendResponse response;
  absl::Status placed;
  while (stream->Read(&response)) {
    if (response.has_output() && placed.ok()) placed = Place(response.output(), outputs);
    if (response.has_progress() && options.progress) options.progress(response.progress());
    if (options.cancel_at_layer > 0 && response.progress().layer() >= options.cancel_at_layer) {
      context.TryCancel();
    }
    if (response.has_report()) result.report = response.report();
  }
  if (absl::Status status = wire::FromGrpc(stream->Finish()); !status.ok()) return status;
  if (!placed.ok()) return placed;
  for (const auto& [tensor, rows] : outputs) {
    std::vector<float>& values = result.outputs[tensor];
    for (const auto& [number, row] : rows) {
      if (number * std::ssize(row) != std::ssize(values)) {
        return absl::InternalError(absl::StrCat("rows before ", number, " did not come"));
      }
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  return result;
}

}  // namespace hilbert_ring::testing
