// A golden case of an encoder: a model's folder, slides, and the states and vectors that
// encoder_oracle.py gives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

// How far PyTorch's encoder within bfloat16 autocast is from the definition, as autocast_oracle.py
// has recorded: the root mean square of the differences over that of the definition's values.
struct AutocastErrors {
  std::vector<double> states;  // [layers + 1]
  double out = 0;
  // Of models that pool; those of states are [layers + 1].
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
  // Of models with a class token: [layers, tokens, heads].
  std::vector<float> attention_map;
  // Of models that pool: [slides, embed_dim], and [slides, layers + 1, embed_dim] of states.
  std::vector<float> class_out, class_states, mean_out, mean_states;
  AutocastErrors autocast;
};

// Names of all cases, sorted.
std::vector<std::string> EncoderCaseNames();

absl::StatusOr<EncoderCase> LoadEncoderCase(const std::string& name);

// Empty where all is within 2e-5 (scale + |x|), float32's tolerance, else what is furthest off.
// scale: of the numbers; that of a map, whose rows share 1, is 1 / rows.
std::string EncoderMismatch(const std::vector<float>& values, std::span<const float> expected,
                            double scale = 1);

// Empty where values of bfloat16 compute are right: their error, as of AutocastErrors, is at
// most 1.5 times `autocast`, that of PyTorch. Where that is float32's, for no product came before,
// they are within float32's tolerance.
std::string BFloat16Mismatch(const std::vector<float>& values, std::span<const float> expected,
                             double autocast);

// Of rows [slides, states, dim] those of one state: [slides, dim].
std::vector<float> OfState(const std::vector<float>& rows, int64_t slides, int64_t states,
                           int64_t state);

}  // namespace hilbert_ring::testing
