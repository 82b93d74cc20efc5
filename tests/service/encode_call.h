// One Encode call by hand, as raw_call.h is for Attend.
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
  int64_t count = 0;           // of tiles, whatever the spec says
  std::vector<float> tiles;    // [tiles, tile_dim]
  std::vector<double> coords;  // [tiles, 2] or empty
};

struct EncodeResult {
  // Rows by number, row-major: of STATES and ATTENTION_MAP tokens, of POOLED slides.
  std::map<v1::Tensor, std::vector<float>> outputs;
  v1::Report report;
};

struct EncodeOptions {
  int64_t chunk_rows = 1024;
  uint64_t seed = 1;  // of the chunks' order
  bool want_trace = false;
  // Named in place of chunks, of which none is sent.
  std::vector<v1::TensorFile> files = {};
  // Told of each progress of the compute.
  std::function<void(const v1::Progress& progress)> progress = nullptr;
  // The call is cancelled once so many layers are done; 0: it is not.
  int64_t cancel_at_layer = 0;
  // For the whole call: an emulated GPU takes minutes for 5,000 tiles where others work beside it.
  std::chrono::milliseconds limit = std::chrono::minutes(8);
};

// The tiles as float32, in chunks of `chunk_rows`, shuffled. Errors: the call's status;
// INTERNAL where rows come twice, overlap or are misshapen.
absl::StatusOr<EncodeResult> EncodeRaw(const std::shared_ptr<grpc::Channel>& channel,
                                       const v1::EncodeSpec& spec, const EncodeInputs& inputs,
                                       const EncodeOptions& options = {});

// So many tiles of random numbers, at random places of the area that the case has.
EncodeInputs ManyTiles(const EncoderCase& golden, int64_t tiles, uint64_t seed);

// A spec of all slides in one job, in float32.
v1::EncodeSpec SpecOf(const std::string& model, const std::vector<int64_t>& slide_tiles,
                      v1::Pooling pooling);

}  // namespace hilbert_ring::testing
