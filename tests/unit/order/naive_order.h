// Curve keys and token orders, bit by bit as in tests/golden/attention_oracle.py: an independent
// check of tables, walks and descents.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// `cell`: 2 or 3 coordinates, x first.
uint64_t NaiveKey(Curve curve, const std::vector<uint64_t>& cell, int bits);

// Slot s holds token NaiveOrder(spec, coords)[s].
std::vector<int64_t> NaiveOrder(const JobSpec& spec, const std::vector<int64_t>& coords);

}  // namespace hilbert_ring
