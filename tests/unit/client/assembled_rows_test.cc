#include "client/cpp/assembled_rows.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/checksum.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

class OutputRowsTest : public ::testing::Test {
 protected:
  static v1::OutputChunk Chunk(int64_t rows, std::string payload) {
    v1::OutputChunk chunk;
    chunk.set_tensor(v1::TENSOR_OUT);
    chunk.set_rows(rows);
    chunk.set_crc32c(wire::Crc32c(payload));
    chunk.set_payload(std::move(payload));
    return chunk;
  }
  absl::Status Place(const v1::OutputChunk& chunk) {
    return rows_.Place(chunk, wire::Payload(chunk.payload()));
  }
  std::string Text() const { return {reinterpret_cast<const char*>(data_.data()), data_.size()}; }

  std::vector<std::byte> data_ = std::vector<std::byte>(10);
  AssembledRows rows_{{.tensor = v1::TENSOR_OUT,
                       .rows = 5,
                       .row_bytes = 2,
                       .type = DataType::kFloat16,
                       .data = data_}};
};

TEST_F(OutputRowsTest, PlacesRangesAndLists) {
  v1::OutputChunk range = Chunk(2, "ccdd");
  range.set_first_token(2);
  ASSERT_TRUE(Place(range).ok());
  v1::OutputChunk list = Chunk(3, "eeaabb");
  for (int64_t token : {4, 0, 1}) list.add_tokens(token);
  EXPECT_THAT(std::string(rows_.CheckComplete().message()),
              HasSubstr("omitted 3 of 5 rows, the first for token 0"));
  ASSERT_TRUE(Place(list).ok());
  EXPECT_TRUE(rows_.CheckComplete().ok());
  EXPECT_EQ(rows_.rows_placed(), 5);
  EXPECT_EQ(Text(), "aabbccddee");
}

// The rows of four numbers each, of which one is the one given.
template <typename Word>
int64_t CountOf(DataType type, Word number, std::vector<size_t> rows) {
  std::vector<Word> numbers(5 * 4, 1);
  for (const size_t row : rows) numbers[4 * row + row % 4] = number;
  v1::OutputChunk chunk;
  chunk.set_rows(5);
  chunk.set_payload(
      std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Word)));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  std::vector<std::byte> data(chunk.payload().size());
  AssembledRows placed({.tensor = v1::TENSOR_OUT,
                        .rows = 5,
                        .row_bytes = 4 * sizeof(Word),
                        .type = type,
                        .data = data});
  EXPECT_TRUE(placed.Place(chunk, wire::Payload(chunk.payload())).ok());
  if (placed.rows_not_finite() > 0) {
    EXPECT_EQ(placed.first_not_finite(), static_cast<int64_t>(rows.front()));
  }
  return placed.rows_not_finite();
}

TEST(AssembledRows, RowsThatAreNotFiniteAreCounted) {
  for (const uint32_t odd : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u}) {
    EXPECT_EQ(CountOf<uint32_t>(DataType::kFloat32, odd, {1, 4}), 2) << odd;
  }
  EXPECT_EQ(CountOf<uint32_t>(DataType::kFloat32, 0x7f7fffff, {1, 4}), 0);
  EXPECT_EQ(CountOf<uint32_t>(DataType::kFloat32, 0x7f807f80, {}), 0);
  EXPECT_EQ(CountOf<uint16_t>(DataType::kFloat16, 0xfc00, {0, 1, 2, 3, 4}), 5);
  EXPECT_EQ(CountOf<uint16_t>(DataType::kBFloat16, 0x7f81, {3}), 1);
  EXPECT_EQ(CountOf<uint16_t>(DataType::kBFloat16, 0x7f7f, {3}), 0);
  EXPECT_EQ(CountOf<uint16_t>(DataType::kBFloat16, 0x7c00, {3}), 0);  // infinite as float16 alone
}

TEST_F(OutputRowsTest, RowsThatAreNotFiniteAreFoundByTheirToken) {
  v1::OutputChunk list = Chunk(3, std::string("\x00\x7e"
                                              "ab"
                                              "\x01\xfc",
                                              6));
  for (int64_t token : {4, 0, 2}) list.add_tokens(token);
  ASSERT_TRUE(Place(list).ok());
  EXPECT_EQ(rows_.rows_not_finite(), 2);
  EXPECT_EQ(rows_.first_not_finite(), 2);
}

TEST_F(OutputRowsTest, RefusesCorruptRows) {
  v1::OutputChunk corrupt = Chunk(1, "aa");
  corrupt.set_payload("ab");
  EXPECT_EQ(Place(corrupt).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(rows_.rows_placed(), 0);
}

}  // namespace
}  // namespace hilbert_ring::client
