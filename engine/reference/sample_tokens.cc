#include "engine/reference/sample_tokens.h"

#include <random>
#include <set>

namespace hilbert_ring {

std::vector<int64_t> SampleTokens(int64_t tokens, int64_t rows, uint64_t seed) {
  std::vector<int64_t> sample;
  if (rows >= tokens) {
    for (int64_t token = 0; token < tokens; ++token) sample.push_back(token);
    return sample;
  }
  std::set<int64_t> drawn;
  if (rows >= 2) drawn = {0, tokens - 1};
  std::mt19937_64 random(seed);
  // Whichever is fewer is drawn, the rows that are in or those that are left out, so that few draws
  // repeat.
  if (rows <= tokens / 2) {
    while (static_cast<int64_t>(drawn.size()) < rows) {
      drawn.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(tokens)));
    }
  } else {
    std::set<int64_t> left_out;
    while (static_cast<int64_t>(left_out.size()) < tokens - rows) {
      const int64_t token = static_cast<int64_t>(random() % static_cast<uint64_t>(tokens));
      if (!drawn.contains(token)) left_out.insert(token);
    }
    for (int64_t token = 0; token < tokens; ++token) {
      if (!left_out.contains(token)) drawn.insert(token);
    }
  }
  sample.assign(drawn.begin(), drawn.end());
  return sample;
}

}  // namespace hilbert_ring
