// Small random jobs for property tests, with every feature of the spec. Corner cases are one token,
// fewer tokens than workers, segments longer than the sequence, dilations longer than the segment.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring::testing {

struct RandomSpecOptions {
  int64_t max_tokens = 300;
  int64_t max_heads = 8;
};

JobSpec RandomSpec(std::mt19937_64& random, const RandomSpecOptions& options = {});

// Coordinates [tokens, axes] with collisions if the spec needs them, else empty.
std::vector<int64_t> RandomCoords(const JobSpec& spec, std::mt19937_64& random);

// Normal values that are exact in bfloat16 and float16.
std::vector<float> RandomValues(int64_t count, std::mt19937_64& random);

}  // namespace hilbert_ring::testing
