#include "wire/payload.h"

#include <algorithm>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "wire/checksum.h"

namespace hilbert_ring::wire {
namespace {

std::string Text(const Payload& payload) {
  std::string text;
  for (const std::string_view part : payload.parts()) text += part;
  return text;
}

// Reads of any length cross the ends of parts.
TEST(PayloadReader, ReadsOnOverTheEndsOfParts) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    std::string whole(1 + random() % 200, '\0');
    for (char& byte : whole) byte = static_cast<char>(random());
    Payload payload;
    for (size_t at = 0; at < whole.size();) {
      const size_t part = std::min<size_t>(random() % 20, whole.size() - at);
      payload.Append(std::string_view(whole).substr(at, part));
      at += part;
    }
    ASSERT_EQ(payload.bytes(), static_cast<int64_t>(whole.size()));
    EXPECT_EQ(payload.Crc32c(), Crc32c(whole, 0));
    PayloadReader reader(payload);
    for (size_t at = 0; at < whole.size();) {
      const size_t bytes = std::min<size_t>(random() % 50, whole.size() - at);
      const std::string expected = whole.substr(at, bytes);
      switch (random() % 3) {
        case 0: {
          std::string read(bytes, '\0');
          reader.Read(read.data(), static_cast<int64_t>(bytes));
          ASSERT_EQ(read, expected) << "from " << at;
          break;
        }
        case 1:
          ASSERT_EQ(Text(reader.Next(static_cast<int64_t>(bytes))), expected) << "from " << at;
          break;
        default:
          reader.Skip(static_cast<int64_t>(bytes));
      }
      at += bytes;
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::wire
