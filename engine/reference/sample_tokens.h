// Which rows of a job are computed again.
#pragma once

#include <cstdint>
#include <vector>

namespace hilbert_ring {

// Ascending and distinct, all tokens where there are fewer than `rows`; the first and the last
// token are among them when there are two rows or more.
std::vector<int64_t> SampleTokens(int64_t tokens, int64_t rows, uint64_t seed);

}  // namespace hilbert_ring
