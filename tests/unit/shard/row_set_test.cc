#include "server/shard/row_set.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(RowSet, AgreesWithABitmap) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const auto size = static_cast<int64_t>(1 + random() % 40);
    RowSet set(size);
    std::vector<bool> there(size);
    for (int step = 0; step < 60; ++step) {
      const auto begin = static_cast<int64_t>(random() % size);
      const auto end = begin + 1 + static_cast<int64_t>(random() % (size - begin));
      if (random() % 3 == 0) {
        set.Remove(begin, end);
        std::fill(there.begin() + begin, there.begin() + end, false);
      } else {
        bool overlaps = false;
        for (int64_t i = begin; i < end; ++i) overlaps = overlaps || there[i];
        ASSERT_EQ(set.Add(begin, end), !overlaps);
        if (!overlaps) std::fill(there.begin() + begin, there.begin() + end, true);
      }
      ASSERT_EQ(set.count(), std::count(there.begin(), there.end(), true));
      size_t fragments = 0;
      for (int64_t i = 0; i < size; ++i) fragments += there[i] && (i == 0 || !there[i - 1]);
      ASSERT_EQ(set.fragments(), fragments);
      const auto from = static_cast<int64_t>(random() % (size + 1));
      const auto first = std::find(there.begin() + from, there.end(), false);
      const auto last = std::find(first, there.end(), true);
      ASSERT_EQ(set.GapFrom(from), (RowSpan{first - there.begin(), last - there.begin()}));
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::server
