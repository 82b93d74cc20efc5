// A golden case: a spec, its data, and the result that the oracle gives.
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
  std::vector<int64_t> coords;  // [tokens, axes] or empty
  std::vector<double> out, lse;
  double max_score = 0;  // over all scores, for tolerances
  double max_value = 0;  // over all values
};

// Names of all cases, sorted.
std::vector<std::string> GoldenCaseNames();

absl::StatusOr<GoldenCase> LoadGoldenCase(const std::string& name);

}  // namespace hilbert_ring::testing
