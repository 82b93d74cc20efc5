// A golden case: a spec, its data, and the oracle's result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::testing {

struct GoldenCase {
  std::string name;
  JobSpec spec;
  std::vector<float> q, k, v;
  std::vector<int64_t> coords;     // [tokens, axes] or empty
  std::vector<float> bias_coords;  // [key tokens, axes] or empty
  std::vector<double> out, lse;
  // By token; enter bounds (engine/expected_golden.h): the case's own, or the greatest finite
  // score. A case with 1 and greater scores has exact answers.
  std::vector<double> max_scores;
  double max_value = 0;  // over all finite values
};

std::vector<DataType> TypesThatHold(const GoldenCase& golden);

std::vector<std::string> GoldenCaseNames();

absl::StatusOr<GoldenCase> LoadGoldenCase(const std::string& name);

}  // namespace hilbert_ring::testing
