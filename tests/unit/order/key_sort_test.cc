#include "engine/order/key_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace hilbert_ring {
namespace {

// Few different keys as well as many, so that equal keys and digits that all tokens share occur.
TEST(KeySortTest, SortsByKeyAndKeepsTokensOfEqualKeyInOrder) {
  std::mt19937_64 random(1);
  std::vector<KeyedToken> scratch;
  for (const size_t count : {0, 1, 2, 100, 255, 256, 5000, 70000}) {
    for (const int key_bits : {2, 11, 12, 40, 63, 64}) {
      const uint64_t mask = key_bits == 64 ? ~uint64_t{0} : (uint64_t{1} << key_bits) - 1;
      for (const uint64_t pattern : {mask, mask & 0xff, mask & ~uint64_t{0xffffff}}) {
        std::vector<KeyedToken> tokens(count);
        for (size_t i = 0; i < count; ++i) tokens[i] = {random() & pattern, i};
        std::vector<KeyedToken> expected = tokens;
        std::stable_sort(expected.begin(), expected.end(),
                         [](const KeyedToken& a, const KeyedToken& b) { return a.key < b.key; });
        SortByKey(key_bits, tokens, scratch);
        ASSERT_EQ(tokens.size(), count);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(tokens[i].key, expected[i].key) << i << " of " << count;
          ASSERT_EQ(tokens[i].token, expected[i].token) << i << " of " << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
