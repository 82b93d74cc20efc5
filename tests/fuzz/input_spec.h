#pragma once

#include "engine/spec/job_spec.h"
#include "tests/fuzz/input_bytes.h"

namespace hilbert_ring::fuzz {

// Mostly a valid spec; sometimes any numbers in any fields.
JobSpec InputSpec(InputBytes& input, int max_tokens);

}  // namespace hilbert_ring::fuzz
