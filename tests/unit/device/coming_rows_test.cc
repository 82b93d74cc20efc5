#include "engine/device/cpu/coming_rows.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

// What `calls` calls ask for: address from `memory` on -> times.
std::map<int64_t, int> AskedFor(const ComingRows& rows, int64_t calls, const char* memory) {
  std::map<int64_t, int> asked;
  ComingLines lines(rows, calls);
  for (int64_t i = 0; i < calls; ++i) {
    lines.Next([&](const char* at) { ++asked[at - memory]; });
  }
  return asked;
}

TEST(ComingLines, EachLineOfEachRowIsAskedForOnce) {
  const std::string memory(1 << 16, '\0');
  for (const int64_t key_bytes : {32, 64, 128, 512}) {
    for (const int64_t value_bytes : {16, 256, 320}) {
      for (const int64_t count : {0, 1, 3, 4, 16}) {
        for (const int64_t calls : {1, 7, 8, 16, 200}) {
          const ComingRows rows{.keys = memory.data(),
                                .values = memory.data() + 32768,
                                .key_stride = 2048,
                                .value_stride = 1024,
                                .key_bytes = key_bytes,
                                .value_bytes = value_bytes,
                                .count = count};
          std::map<int64_t, int> expected;
          for (int64_t row = 0; row < count; ++row) {
            for (int64_t at = 0; at < key_bytes; at += kLineBytes) ++expected[2048 * row + at];
            for (int64_t at = 0; at < value_bytes; at += kLineBytes) {
              ++expected[32768 + 1024 * row + at];
            }
          }
          EXPECT_EQ(AskedFor(rows, calls, memory.data()), expected)
              << key_bytes << " " << value_bytes << " " << count << " " << calls;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
