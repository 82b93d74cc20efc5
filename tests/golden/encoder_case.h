// A golden case of an encoder: a model's folder, slides, and the states and vectors that
// encoder_oracle.py gives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

struct EncoderCase {
  std::string name;
  std::string folder;                // with config.json and model.safetensors
  std::vector<int64_t> slide_tiles;  // of each slide
  std::vector<float> tiles;          // [tiles, tile_dim]
  std::vector<double> coords;        // [tiles, 2] or empty
  std::vector<float> states;         // [layers + 1, tokens, embed_dim]
  std::vector<float> out;            // [tokens, embed_dim]
  // Of models with a class token: [layers, tokens, heads].
  std::vector<float> attention_map;
  // Of models that pool: [slides, embed_dim], and [slides, layers + 1, embed_dim] of states.
  std::vector<float> class_out, class_states, mean_out, mean_states;
};

// Names of all cases, sorted.
std::vector<std::string> EncoderCaseNames();

absl::StatusOr<EncoderCase> LoadEncoderCase(const std::string& name);

// Empty where all is within 2e-5 (scale + |x|), float32's tolerance, else what is furthest off.
// scale: of the numbers; that of a map, whose rows share 1, is 1 / rows.
std::string EncoderMismatch(const std::vector<float>& values, std::span<const float> expected,
                            double scale = 1);

}  // namespace hilbert_ring::testing
