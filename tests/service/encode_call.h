#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/encoder.grpc.pb.h"
#include "tests/golden/encoder_case.h"

namespace hilbert_ring::testing {

struct EncodeInputs {
  int64_t count = 0;           // tiles; the spec may state another number
  std::vector<float> tiles;    // [tiles, tile_dim]
  std::vector<double> coords;  // [tiles, 2] or empty
};

struct EncodeResult {
  // Rows by number, row-major: tokens of STATES and ATTENTION_MAP, slides of POOLED.
  std::map<v1::Tensor, std::vector<float>> outputs;
  v1::Report report;
};

struct EncodeOptions {
  int64_t chunk_rows = 1024;
  uint64_t seed = 1;  // of the chunks' order
  bool want_trace = false;
  std::vector<v1::TensorFile> files = {};
  std::function<void(const v1::Progress& progress)> progress = nullptr;
  // cancels the call after so many layers; 0: never
  int64_t cancel_at_layer = 0;
  // Limit of the whole call: an emulated GPU takes minutes for 5,000 tiles on a busy machine.
  std::chrono::milliseconds limit = std::chrono::minutes(8);
};

// Sends the tiles as float32 in shuffled chunks. Errors are the call's status, or INTERNAL for
// repeated, overlapping or misshapen rows.
absl::StatusOr<EncodeResult> EncodeRaw(const std::shared_ptr<grpc::Channel>& channel,
                                       const v1::EncodeSpec& spec, const EncodeInputs& inputs,
                                       const EncodeOptions& options = {});

EncodeInputs ManyTiles(const EncoderCase& golden, int64_t tiles, uint64_t seed);

v1::EncodeSpec SpecOf(const std::string& model, const std::vector<int64_t>& slide_tiles,
                      v1::Pooling pooling);

}  // namespace hilbert_ring::testing
