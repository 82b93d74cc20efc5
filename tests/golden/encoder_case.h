// A golden case of an encoder: a model's folder, slides, and encoder_oracle.py's states and
// vectors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

// Errors of PyTorch's encoder within bfloat16 autocast (autocast_oracle.py): the root mean square
// of the differences over that of the definition's values.
struct AutocastErrors {
  std::vector<double> states;  // [layers + 1]
  double out = 0;
  // Only if the model pools. The states' are [layers + 1].
  double class_out = 0, mean_out = 0;
  std::vector<double> class_states, mean_states;
};

struct EncoderCase {
  std::string name;
  std::string folder;                // with config.json and model.safetensors
  std::vector<int64_t> slide_tiles;  // of each slide
  std::vector<float> tiles;          // [tiles, tile_dim]
  std::vector<double> coords;        // [tiles, 2] or empty
  std::vector<float> states;         // [layers + 1, tokens, embed_dim]
  std::vector<float> out;            // [tokens, embed_dim]
  std::vector<float> attention_map;  // [layers, tokens, heads]; empty without a class token
  // Only if the model pools: [slides, embed_dim], and [slides, layers + 1, embed_dim] of states.
  std::vector<float> class_out, class_states, mean_out, mean_states;
  AutocastErrors autocast;
};

std::vector<std::string> EncoderCaseNames();

absl::StatusOr<EncoderCase> LoadEncoderCase(const std::string& name);

// Empty, or the worst value outside 2e-5 (scale + |x|). scale: 1 / rows for a map, whose rows sum
// to 1.
std::string EncoderMismatch(const std::vector<float>& values, std::span<const float> expected,
                            double scale = 1);

// Empty if the error, as in AutocastErrors, is at most 1.5 times PyTorch's. If PyTorch's is
// float32's, because no product came before, so is the tolerance.
std::string BFloat16Mismatch(const std::vector<float>& values, std::span<const float> expected,
                             double autocast);

// Picks one state of rows [slides, states, dim]: [slides, dim].
std::vector<float> OfState(const std::vector<float>& rows, int64_t slides, int64_t states,
                           int64_t state);

}  // namespace hilbert_ring::testing
