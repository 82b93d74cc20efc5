#include "tests/unit/client/fake_encoder.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::client {
namespace {

using Stream = grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>;

constexpr int64_t kTileDim = 4, kDim = 16, kHeads = 2;

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

bool WriteRows(Stream* stream, v1::Tensor tensor, const std::vector<std::vector<float>>& rows) {
  for (auto row = static_cast<int64_t>(rows.size()) - 1; row >= 0; --row) {
    v1::AttendResponse response;
    *response.mutable_output() = FakeOutput(tensor, row, 1, Bytes(rows[static_cast<size_t>(row)]));
    if (!stream->Write(response)) return false;
  }
  return true;
}

std::vector<std::vector<float>> Rows(const v1::EncodeSpec& spec, int64_t count) {
  std::vector<std::vector<float>> rows(static_cast<size_t>(count));
  for (int64_t row = 0; row < count; ++row) {
    for (const int64_t state : spec.states()) {
      rows[static_cast<size_t>(row)].insert(rows[static_cast<size_t>(row)].end(), kDim,
                                            static_cast<float>(100 * state + row));
    }
  }
  return rows;
}

std::vector<std::vector<float>> MapRows(const v1::EncodeSpec& spec, int64_t tokens) {
  std::vector<std::vector<float>> rows(static_cast<size_t>(tokens));
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t columns = spec.attention_map_by_head() ? kHeads : 1;
    for (int64_t head = 0; head < columns; ++head) {
      rows[static_cast<size_t>(token)].push_back(static_cast<float>(token) / 2 +
                                                 static_cast<float>(head));
    }
  }
  return rows;
}

}  // namespace

FakeEncoder::FakeEncoder(FakeEncoderBehaviour behaviour, int port)
    : behaviour_(std::move(behaviour)), server_(*this, port) {}

FakeRecord FakeEncoder::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

int FakeEncoder::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

v1::Model FakeEncoder::Model(bool positions) {
  v1::Model model;
  model.set_name("small");
  model.set_digest("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
  model.set_config(absl::StrCat(
      R"({"architecture": "longnet_encoder", "input_dim": 4, "embed_dim": 16, "heads": 2,)",
      R"("ffn_dim": 8, "layers": 2, "segments": [16], "dilations": [1], "layer_norm_eps": 1e-5,)",
      R"("norm_eps": 1e-6, "class_token": true, "output_norm": true, "position": )",
      positions ? R"({"kind": "sincos_2d", "tile_size": 10, "grid": 20})" : "null", "}"));
  model.set_weight_bytes(1 << 20);
  model.set_workers(2);
  model.set_tile_dim(kTileDim);
  model.set_embed_dim(kDim);
  model.set_layers(2);
  model.set_heads(kHeads);
  model.set_class_token(true);
  model.set_positions(positions);
  model.set_grid_pixels(positions ? 200 : 0);
  model.set_pools(true);
  return model;
}

grpc::Status FakeEncoder::Encode(grpc::ServerContext* /*context*/, Stream* stream) {
  v1::AttendRequest request;
  if (!stream->Read(&request) || !request.open().has_encode()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "no Open"};
  }
  FakeRecord record{.open = request.open()};
  int call = 0;
  {
    const std::lock_guard lock(mutex_);
    call = calls_++;
  }
  const v1::EncodeSpec& spec = record.open.encode();
  v1::AttendResponse response;
  response.mutable_admitted()->set_workers(2);
  stream->Write(response);
  int64_t tiles = 0;
  for (const int64_t of_slide : spec.slide_tiles()) tiles += of_slide;
  int64_t missing = tiles * (behaviour_.positions ? 2 : 1);
  bool asked = !behaviour_.resend;
  while (missing > 0 && stream->Read(&request)) {
    const v1::Chunk& chunk = request.chunk();
    record.Keep(chunk, tiles);
    if (!record.checksums_right) return {grpc::StatusCode::DATA_LOSS, "checksum"};
    missing -= chunk.rows();
    if (call < behaviour_.failures) {
      return wire::ToGrpc(wire::WithReason(absl::UnavailableError("it stops"), "DRAINING"));
    }
    if (!asked && chunk.tensor() == v1::TENSOR_TILES) {
      asked = true;
      *response.mutable_resend() = *behaviour_.resend;
      for (const v1::Resend::Range& range : behaviour_.resend->ranges()) missing += range.rows();
      stream->Write(response);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    record_ = record;
  }
  const int64_t slides = spec.slide_tiles_size(), tokens = tiles + slides;
  const bool pooled = spec.pooling() != v1::POOLING_NONE;
  response.mutable_progress()->set_phase(v1::Progress::PHASE_COMPUTE);
  response.mutable_progress()->set_fraction(1);
  response.mutable_progress()->set_layer(2);
  stream->Write(response);
  std::vector<std::vector<float>> rows = Rows(spec, pooled ? slides : tokens);
  if (behaviour_.spoilt) {
    rows.at(*behaviour_.spoilt).front() = std::numeric_limits<float>::quiet_NaN();
  }
  WriteRows(stream, pooled ? v1::TENSOR_POOLED : v1::TENSOR_STATES, rows);
  if (spec.attention_map_layer() > 0) {
    WriteRows(stream, v1::TENSOR_ATTENTION_MAP, MapRows(spec, tokens));
  }
  v1::Report& report = *response.mutable_report();
  report.set_job_id(record.open.job_id());
  report.set_tokens(tokens);
  report.set_model_digest(spec.digest());
  report.add_notes("a note of the service");
  stream->Write(response);
  return grpc::Status::OK;
}

v1::EncodeSpec FakeEncoder::planned() const {
  const std::lock_guard lock(mutex_);
  return planned_;
}

grpc::Status FakeEncoder::PlanEncode(grpc::ServerContext* context,
                                     const v1::PlanEncodeRequest* request,
                                     v1::PlanResponse* response) {
  const std::lock_guard lock(mutex_);
  if (plans_++ == 0) {
    context->AddTrailingMetadata(wire::kRetryAfterKey, "1");
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "plans are being made"};
  }
  planned_ = request->spec();
  for (const int64_t tiles : planned_.slide_tiles()) {
    response->set_flops(response->flops() + static_cast<double>(tiles));
  }
  for (int i = 0; i < std::max(1, request->workers()); ++i) response->add_workers();
  response->add_notes("a note of the plan");
  response->set_json("{\"planned\": true}");
  return grpc::Status::OK;
}

grpc::Status FakeEncoder::ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                                     v1::ListModelsResponse* response) {
  v1::Model& broken = *response->add_models();
  broken.set_name("broken");
  broken.set_error("config.json: layers is required");
  *response->add_models() = Model(behaviour_.positions);
  return grpc::Status::OK;
}

grpc::Status FakeEncoder::GetModel(grpc::ServerContext*, const v1::GetModelRequest* request,
                                   v1::Model* response) {
  if (request->name() == "broken") {
    response->set_name("broken");
    response->set_error("config.json: layers is required");
    return grpc::Status::OK;
  }
  if (request->name() != "small") {
    return wire::ToGrpc(wire::WithReason(
        absl::NotFoundError(absl::StrCat("no model ", request->name())), "MODEL_NOT_FOUND"));
  }
  *response = Model(behaviour_.positions);
  return grpc::Status::OK;
}

}  // namespace hilbert_ring::client
