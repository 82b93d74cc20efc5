// Runs slides through an encoder by the engine alone: plan, ranks as threads, one communicator
// each.
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
  std::map<int64_t, std::vector<float>> states;  // [tokens, embed_dim], where nothing is pooled
  std::map<int64_t, std::vector<float>> pooled;  // [slides, embed_dim]
  std::vector<float> map;                        // [tokens, columns], where it is wanted
  std::vector<EncoderFigures> figures;           // by rank
};

struct EncoderRun {
  EncoderOutputs outputs;
  int ranks = 1;
  int threads = 2;           // of each rank
  std::string instructions;  // of a CPU's attention, as of DeviceOptions; empty: the best
  RingKind ring = RingKind::kInProcess;
  int64_t tiles_at_once = 37;  // of a call of PlaceTiles
  DataType tiles_dtype = DataType::kFloat32;
  EncoderControl placing;  // of each rank, of PlaceTiles
  // Of each rank's Run, but for where outputs go; rows of a map are shown to its `map` too.
  EncoderControl control;
};

absl::StatusOr<EncoderResult> RunEncoder(const std::shared_ptr<const EncoderModel>& model,
                                         const EncoderInput& input, const EncoderRun& run);

}  // namespace hilbert_ring::testing
