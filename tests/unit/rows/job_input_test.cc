#include "server/rows/job_input.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kTokens = 100;

JobSpec InputSpec() { return PlainSpec({.tokens = kTokens, .heads = 1, .dim = 8}); }

absl::Status Accept(JobInput& input, const JobSpec& spec, v1::Tensor tensor, int64_t begin,
                    int64_t end) {
  std::string rows((end - begin) * wire::TensorRowBytes(spec, tensor), '\0');
  for (size_t i = 0; i < rows.size(); i += 4) rows[i] = static_cast<char>(i % 100);
  v1::Chunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_first_row(begin);
  chunk.set_rows(end - begin);
  chunk.set_crc32c(wire::Crc32c(rows));
  return input.Accept(chunk, wire::Payload(rows));
}

TEST(JobInput, LostSlotsAreRequestedAsFarAsTheyHadCome) {
  OrderCache orders(0);
  const JobSpec spec = InputSpec();
  JobInput input(spec, orders);
  ASSERT_TRUE(input.Begin().ok());
  ASSERT_TRUE(input.order_known());
  ASSERT_TRUE(Accept(input, spec, v1::TENSOR_Q, 0, 30).ok());
  ASSERT_TRUE(Accept(input, spec, v1::TENSOR_Q, 40, 100).ok());
  ASSERT_TRUE(Accept(input, spec, v1::TENSOR_K, 0, 10).ok());
  const std::vector<RowSpan> lost = {{20, 50}, {90, 100}};
  const auto missing = input.Forget({.slots = lost});
  ASSERT_EQ(missing.size(), 1u);  // no row of K or V had come in them
  EXPECT_EQ(missing[0].tensor, v1::TENSOR_Q);
  EXPECT_EQ(missing[0].tokens, (std::vector<RowSpan>{{20, 30}, {40, 50}, {90, 100}}));
  EXPECT_EQ(input.Rows(v1::TENSOR_Q).count(), 60);
  EXPECT_TRUE(Accept(input, spec, v1::TENSOR_Q, 20, 30).ok());
  EXPECT_EQ(wire::ReasonOf(Accept(input, spec, v1::TENSOR_Q, 50, 60)), "CHUNK_MISSHAPEN");
  EXPECT_FALSE(input.Complete());
  EXPECT_TRUE(input.Forget({}).empty());
}

TEST(JobInput, AnOrderScattersLostRows) {
  OrderCache orders(0);
  JobSpec spec = InputSpec();
  spec.ordering = Ordering{.scope = OrderScope::kKv};
  JobInput input(spec, orders);
  ASSERT_TRUE(input.Begin().ok());
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    ASSERT_TRUE(Accept(input, spec, tensor, 0, kTokens).ok());
  }
  EXPECT_TRUE(input.Complete());
  const std::vector<RowSpan> lost = {{0, 50}};
  const auto missing = input.Forget({.slots = lost});
  ASSERT_EQ(missing.size(), 3u);
  EXPECT_EQ(missing[0].tokens, (std::vector<RowSpan>{{0, 50}}));  // queries' slots are tokens
  EXPECT_EQ(missing[1].tokens, (std::vector<RowSpan>{{0, kTokens}}));
  EXPECT_EQ(missing[2].tokens, (std::vector<RowSpan>{{0, kTokens}}));
}

TEST(JobInput, CoordinatesMakeTheOrderOnce) {
  OrderCache orders(0);
  JobSpec spec = InputSpec();
  spec.ordering = Ordering{.coordinate_axes = 2};
  JobInput input(spec, orders);
  ASSERT_TRUE(input.Begin().ok());
  EXPECT_FALSE(input.order_known());
  EXPECT_EQ(wire::ReasonOf(Accept(input, spec, v1::TENSOR_Q, 0, 10)), "CHUNK_MISSHAPEN");
  ASSERT_TRUE(Accept(input, spec, v1::TENSOR_COORDS, 0, 60).ok());
  EXPECT_FALSE(input.order_known());
  ASSERT_TRUE(Accept(input, spec, v1::TENSOR_COORDS, 60, kTokens).ok());
  ASSERT_TRUE(input.order_known());
  EXPECT_NE(input.order(), nullptr);
  EXPECT_TRUE(Accept(input, spec, v1::TENSOR_Q, 0, 10).ok());
}

// Slots of a lost shard are tokens; the tiles among them come again.
TEST(JobInput, TilesOfLostSlotsComeAgain) {
  const std::vector<int64_t> tiles = {3, 4};
  RowSizes sizes;
  sizes.Set(TensorKind::kTiles, 4);
  const JobShape shape(PlainSpec({.tokens = 9}), sizes, std::make_shared<SlideRows>(tiles, 1));
  OrderCache orders(0);
  JobInput input(shape, orders);
  ASSERT_TRUE(input.Begin().ok());
  v1::Chunk chunk;
  chunk.set_tensor(v1::TENSOR_TILES);
  chunk.set_rows(7);
  const std::string rows(7 * 4, 'x');
  chunk.set_crc32c(wire::Crc32c(rows));
  ASSERT_TRUE(input.Accept(chunk, wire::Payload(rows)).ok());
  EXPECT_TRUE(input.Complete());
  const std::vector<RowSpan> lost = {{3, 6}};  // tile 2, a class token, tile 3
  const auto missing = input.Forget({.slots = lost});
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].tensor, v1::TENSOR_TILES);
  EXPECT_EQ(missing[0].tokens, (std::vector<RowSpan>{{2, 4}}));
  EXPECT_FALSE(input.Complete());
}

}  // namespace
}  // namespace hilbert_ring::server
