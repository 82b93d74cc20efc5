// The job of a command: a spec's file, flags that replace its fields, or flags alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/job_files.h"

namespace hilbert_ring::cli {

struct JobFlags {
  std::string spec, coords, q, k, v;  // paths; empty: none

  // Fields of the spec, as job_spec_json.h names them; empty or absent: not given.
  std::optional<int64_t> tokens, heads, kv_heads, head_dim, value_dim;
  std::string dtype, mixing, tail;
  std::vector<int64_t> segments, dilations, sequence_lengths;
  std::optional<bool> causal, average_groups;
  std::optional<double> scale;
  std::string curve, scope;  // of the ordering; curve "none": no ordering
  std::optional<int64_t> window;
  std::vector<int64_t> grid;
};

client::JobSource SourceOf(const JobFlags& flags);

}  // namespace hilbert_ring::cli
