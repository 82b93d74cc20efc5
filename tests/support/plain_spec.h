// A spec for tests to which only the size matters.
//
//   const JobSpec spec = PlainSpec({.tokens = 60'000});
#pragma once

#include <cstdint>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct PlainJob {
  int64_t tokens = 64;
  int64_t heads = 2;
  int64_t dim = 16;
  int64_t segment = 0;  // 0: the whole sequence
};

inline JobSpec PlainSpec(const PlainJob& job = {}) {
  JobSpec spec;
  spec.tokens = job.tokens;
  spec.heads = spec.kv_heads = job.heads;
  spec.head_dim = spec.value_dim = job.dim;
  spec.branches = {{job.segment > 0 ? job.segment : job.tokens, 1}};
  return spec;
}

inline JobSpec PublishedSpec(int64_t tokens, DataType dtype = DataType::kFloat32) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 8, .dim = 64});
  spec.dtype = dtype;
  spec.branches = {{2048, 1}, {4096, 2}, {8192, 4}};
  return spec;
}

}  // namespace hilbert_ring
