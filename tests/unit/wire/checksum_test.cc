#include "wire/checksum.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace hilbert_ring::wire {
namespace {

// Bit by bit, from the definition: reflected polynomial 0x1EDC6F41.
uint32_t SlowCrc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

TEST(Checksum, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);              // RFC 3720 and the CRC catalogue
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);    // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);  // RFC 3720, B.4
}

TEST(Checksum, AgreesWithTheDefinition) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 50; ++trial) {
    std::string bytes(random() % 3000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_EQ(Crc32c(bytes), SlowCrc32c(bytes)) << bytes.size();
  }
}

}  // namespace
}  // namespace hilbert_ring::wire
