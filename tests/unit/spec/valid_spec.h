// A spec that is right, for tests to change.
#pragma once

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

inline JobSpec ValidSpec() {
  JobSpec spec;
  spec.tokens = 64;
  spec.heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.value_dim = 32;
  spec.branches = {{16, 1}, {64, 4}};
  return spec;
}

}  // namespace hilbert_ring
