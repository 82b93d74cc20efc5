#include "tests/service/raw_call.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/spec/numbers.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

std::string EncodeValues(DataType dtype, const std::vector<float>& values) {
  std::string bytes(values.size() * ElementBytes(dtype), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

std::vector<v1::Chunk> AllChunks(const JobSpec& spec, const EngineInputs& inputs,
                                 int64_t chunk_rows, uint64_t seed) {
  std::vector<v1::Chunk> coords, rows;
  for (const auto& [tensor, data] : EncodeTensors(spec, inputs)) {
    const int64_t row_bytes = wire::TensorRowBytes(spec, tensor);
    const int64_t tokens = tensor == v1::TENSOR_Q ? spec.tokens : KeyTokens(spec);
    for (int64_t first = 0; first < tokens; first += chunk_rows) {
      (tensor == v1::TENSOR_COORDS || tensor == v1::TENSOR_BIAS_COORDS ? coords : rows)
          .push_back(
              MakeChunk(tensor, data, row_bytes, first, std::min(chunk_rows, tokens - first)));
    }
  }
  std::mt19937_64 random(seed);
  std::shuffle(coords.begin(), coords.end(), random);
  std::shuffle(rows.begin(), rows.end(), random);
  coords.insert(coords.end(), rows.begin(), rows.end());
  return coords;
}

absl::Status Place(const JobSpec& spec, const v1::OutputChunk& chunk, EngineResult& result) {
  if (wire::Crc32c(chunk.payload()) != chunk.crc32c())
    return absl::DataLossError("output checksum");
  const bool is_out = chunk.tensor() == v1::TENSOR_OUT;
  const int64_t width = is_out ? spec.heads * spec.value_dim : spec.heads;
  const DataType dtype = is_out ? spec.dtype : DataType::kFloat32;
  std::vector<float>& values = is_out ? result.out : result.lse;
  if (static_cast<int64_t>(chunk.payload().size()) != chunk.rows() * width * ElementBytes(dtype)) {
    return absl::InternalError("output chunk is misshapen");
  }
  for (int64_t row = 0; row < chunk.rows(); ++row) {
    const int64_t token =
        chunk.tokens().empty() ? chunk.first_token() + row : chunk.tokens(static_cast<int>(row));
    for (int64_t i = 0; i < width; ++i) {
      float& value = values.at(token * width + i);
      if (!std::isnan(value)) return absl::InternalError(absl::StrCat("token ", token, " twice"));
      value = LoadElement(dtype, chunk.payload().data(), row * width + i);
    }
  }
  return absl::OkStatus();
}

}  // namespace

v1::Chunk MakeChunk(v1::Tensor tensor, const std::string& data, int64_t row_bytes, int64_t first,
                    int64_t rows) {
  v1::Chunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_first_row(first);
  chunk.set_rows(rows);
  chunk.set_payload(data.substr(first * row_bytes, rows * row_bytes));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  return chunk;
}

RawCall::RawCall(v1::AttentionService::Stub& stub, std::chrono::milliseconds limit, Method method) {
  context_.set_deadline(std::chrono::system_clock::now() + limit);
  context_.set_wait_for_ready(true);
  stream_ = method == Method::kAttend ? stub.Attend(&context_) : stub.AttendStream(&context_);
}

RawCall::~RawCall() {
  if (finished_) return;
  context_.TryCancel();
  Finish().IgnoreError();
}

bool RawCall::Open(const JobSpec& spec, bool want_lse) {
  v1::AttendRequest request;
  *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  request.mutable_open()->set_want_lse(want_lse);
  return stream_->Write(request);
}

bool RawCall::Write(const v1::AttendRequest& request) { return stream_->Write(request); }

bool RawCall::Send(const v1::Chunk& chunk) {
  v1::AttendRequest request;
  *request.mutable_chunk() = chunk;
  return stream_->Write(request);
}

bool RawCall::AwaitAdmitted() {
  v1::AttendResponse response;
  while (stream_->Read(&response)) {
    if (response.has_admitted()) return true;
  }
  return false;
}

bool RawCall::Read(v1::AttendResponse* response) { return stream_->Read(response); }

void RawCall::WritesDone() { stream_->WritesDone(); }

void RawCall::Cancel() { context_.TryCancel(); }

absl::Status RawCall::Finish() {
  v1::AttendResponse response;
  while (stream_->Read(&response)) {
  }
  finished_ = true;
  return wire::FromGrpc(stream_->Finish());
}

std::optional<int> RawCall::retry_after_ms() const {
  const auto& trailers = context_.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  int retry_after = 0;
  if (found == trailers.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()),
                        &retry_after)) {
    return std::nullopt;
  }
  return retry_after;
}

std::map<v1::Tensor, std::string> EncodeTensors(const JobSpec& spec, const EngineInputs& inputs) {
  std::map<v1::Tensor, std::string> tensors = {{v1::TENSOR_Q, EncodeValues(spec.dtype, inputs.q)},
                                               {v1::TENSOR_K, EncodeValues(spec.dtype, inputs.k)},
                                               {v1::TENSOR_V, EncodeValues(spec.dtype, inputs.v)}};
  if (!inputs.coords.empty()) {
    std::string& coords = tensors[v1::TENSOR_COORDS];
    for (const int64_t coordinate : inputs.coords) {
      const auto value = static_cast<uint32_t>(coordinate);
      coords.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  if (!inputs.bias_coords.empty()) {
    tensors[v1::TENSOR_BIAS_COORDS] = EncodeValues(DataType::kFloat32, inputs.bias_coords);
  }
  return tensors;
}

absl::StatusOr<ServiceResult> AttendRaw(v1::AttentionService::Stub& stub, const JobSpec& spec,
                                        const EngineInputs& inputs, int64_t chunk_rows,
                                        uint64_t seed) {
  RawCall call(stub, std::chrono::seconds(60));
  call.Open(spec);
  if (!call.AwaitAdmitted()) return call.Finish();
  std::thread sender([&] {
    for (const v1::Chunk& chunk : AllChunks(spec, inputs, chunk_rows, seed)) {
      if (!call.Send(chunk)) return;
    }
    call.WritesDone();
  });
  auto result = call.Collect(spec);
  sender.join();
  return result;
}

absl::StatusOr<ServiceResult> RawCall::Collect(const JobSpec& spec) {
  ServiceResult service;
  service.result.out.assign(spec.tokens * spec.heads * spec.value_dim, NAN);
  service.result.lse.assign(spec.tokens * spec.heads, NAN);
  absl::Status placed;
  bool reported = false;
  v1::AttendResponse response;
  while (Read(&response)) {
    if (response.has_output() && placed.ok()) {
      placed = Place(spec, response.output(), service.result);
    }
    if (response.has_report()) {
      service.report = response.report();
      reported = true;
    }
  }
  absl::Status status = Finish();
  if (!status.ok()) return status;
  if (!placed.ok()) return placed;
  if (!reported) return absl::InternalError("no report");
  return service;
}

}  // namespace hilbert_ring::testing
