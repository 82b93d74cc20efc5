// Draws the rows of a job that are computed again.
#pragma once

#include <cstdint>
#include <vector>

namespace hilbert_ring {

// At most `rows` distinct tokens in ascending order, with the first and the last if two or more.
std::vector<int64_t> SampleTokens(int64_t tokens, int64_t rows, uint64_t seed);

}  // namespace hilbert_ring
