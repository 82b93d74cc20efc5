// Runs slides through an encoder in the engine alone: a plan, and ranks as threads with a
// communicator each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/encoder_rank.h"
#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring::testing {

struct EncoderInput {
  std::vector<int64_t> slide_tiles;
  std::vector<float> tiles;    // [tiles, tile_dim]
  std::vector<double> coords;  // [tiles, 2] or empty
};

struct EncoderResult {
  EncoderPlan plan;
  std::map<int64_t, std::vector<float>> states;  // [tokens, embed_dim], without pooling
  std::map<int64_t, std::vector<float>> pooled;  // [slides, embed_dim]
  std::vector<float> map;                        // [tokens, columns], with an attention map
  std::vector<EncoderFigures> figures;           // by rank
};

struct EncoderRun {
  EncoderOutputs outputs;
  int ranks = 1;
  int threads = 2;           // of each rank
  std::string instructions;  // of a CPU's attention, as in DeviceOptions; empty: the best
  RingKind ring = RingKind::kInProcess;
  int64_t tiles_at_once = 37;  // in a call of PlaceTiles
  DataType tiles_dtype = DataType::kFloat32;
  EncoderControl placing;  // of each rank's PlaceTiles
  // Control of each rank's Run. The runner takes its outputs; `map` receives the map's rows too.
  EncoderControl control;
};

absl::StatusOr<EncoderResult> RunEncoder(const std::shared_ptr<const EncoderModel>& model,
                                         const EncoderInput& input, const EncoderRun& run);

}  // namespace hilbert_ring::testing
