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
  // Draws the smaller set, the sampled or the excluded rows, so that few draws repeat.
  if (rows <= tokens / 2) {
    while (static_cast<int64_t>(drawn.size()) < rows) {
      drawn.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(tokens)));
    }
  } else {
    std::set<int64_t> excluded;
    while (static_cast<int64_t>(excluded.size()) < tokens - rows) {
      const int64_t token = static_cast<int64_t>(random() % static_cast<uint64_t>(tokens));
      if (!drawn.contains(token)) excluded.insert(token);
    }
    for (int64_t token = 0; token < tokens; ++token) {
      if (!excluded.contains(token)) drawn.insert(token);
    }
  }
  sample.assign(drawn.begin(), drawn.end());
  return sample;
}

}  // namespace hilbert_ring
