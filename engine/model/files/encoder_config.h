// An encoder's architecture: config.json beside its weights. tests/golden/encoder_oracle.py defines
// the result.
//
//   {"architecture": "longnet_encoder", "input_dim": 1536, "embed_dim": 768, "heads": 16,
//    "ffn_dim": 3072, "layers": 12, "segments": [1024, 5792], "dilations": [1, 2],
//    "layer_norm_eps": 1e-5, "norm_eps": 1e-6, "class_token": true, "output_norm": true,
//    "position": {"kind": "sincos_2d", "tile_size": 256, "grid": 1000}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// 2-D sine-cosine positions, computed from tiles' coordinates.
struct GridPositions {
  int64_t tile_size = 0;  // side of a cell, in pixels
  int64_t grid = 0;       // side of the grid, in cells
  bool operator==(const GridPositions&) const = default;
};

struct EncoderConfig {
  int64_t input_dim = 0;  // of a tile; 0: tiles are rows of embed_dim, without projection
  int64_t embed_dim = 0;
  int64_t heads = 0;
  int64_t ffn_dim = 0;
  int64_t layers = 0;
  std::vector<Branch> branches;  // of the attention, mixed by log-sum-exp, with zero keys as tail
  double layer_norm_eps = 1e-5;
  double norm_eps = 0;  // of the norm after pooling; 0: the model has no norm and cannot pool
  bool class_token = false;
  bool output_norm = false;
  std::optional<GridPositions> position;
  bool operator==(const EncoderConfig&) const = default;

  int64_t head_dim() const { return embed_dim / heads; }
  int64_t tile_dim() const { return input_dim > 0 ? input_dim : embed_dim; }
};

// Returns a valid config. Errors: INVALID_ARGUMENT and OUT_OF_RANGE, naming field, value and limit.
absl::StatusOr<EncoderConfig> ParseEncoderConfig(std::string_view json);

struct WeightShape {
  std::string name;
  std::vector<int64_t> shape;
};

// The weights of a model, in the order of the layers.
std::vector<WeightShape> WeightShapes(const EncoderConfig& config);

int64_t TokensOf(const EncoderConfig& config, int64_t tiles);

// The attention of one layer as a job, whose plan serves every layer. Errors: Validate;
// INVALID_ARGUMENT (a sequence without tiles).
absl::StatusOr<JobSpec> AttentionOf(const EncoderConfig& config, DataType dtype,
                                    const std::vector<int64_t>& sequence_tiles);

}  // namespace hilbert_ring
