// Draws the rows of a job that are computed again.
#pragma once

#include <cstdint>
#include <vector>

namespace hilbert_ring {

// Returns `rows` distinct tokens in ascending order, or all if there are fewer. Two or more include
// the first and the last token.
std::vector<int64_t> SampleTokens(int64_t tokens, int64_t rows, uint64_t seed);

}  // namespace hilbert_ring
