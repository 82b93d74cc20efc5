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

// Gives the spec another number of queries than of keys, which keep the spec's sequences; with a
// dense pattern perhaps more queries.
void MakeRectangular(JobSpec& spec, std::mt19937_64& random);

// Coordinates [key tokens, axes] with collisions if the spec needs them, else empty.
std::vector<int64_t> RandomCoords(const JobSpec& spec, std::mt19937_64& random);

// Coordinates [key tokens, axes] of biases, some of them NaN and some far away, or empty.
std::vector<float> RandomBiasCoords(const JobSpec& spec, std::mt19937_64& random);

// Normal values that are exact in bfloat16 and float16.
std::vector<float> RandomValues(int64_t count, std::mt19937_64& random);

}  // namespace hilbert_ring::testing
