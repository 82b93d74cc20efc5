#include "server/rows/row_router.h"

#include <cstring>
#include <map>
#include <random>

#include "gtest/gtest.h"
#include "server/rows/row_messages.h"
#include "server/shard/run_message.h"
#include "tests/random/random_spec.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"

namespace hilbert_ring::server {
namespace {

constexpr v1::Tensor kInputTensors[] = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};

v1::Chunk NumberedRows(const JobSpec& spec, v1::Tensor tensor, int64_t first, int64_t rows) {
  const int64_t row_bytes = wire::TensorRowBytes(spec, tensor);
  v1::Chunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_first_row(first);
  chunk.set_rows(rows);
  std::string& payload = *chunk.mutable_payload();
  payload.assign(rows * row_bytes, '\0');
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t token = first + i;
    std::memcpy(payload.data() + i * row_bytes, &token, sizeof(token));
  }
  chunk.set_crc32c(wire::Crc32c(payload));
  return chunk;
}

// [rank][local row] -> token of the routed rows; each place may come once.
using Places = std::vector<std::map<int64_t, int64_t>>;

void Deliver(const JobSpec& spec, int rank, std::vector<grpc::ByteBuffer> messages,
             Places& places) {
  for (grpc::ByteBuffer& message : messages) {
    v1::RunRequest request;
    ASSERT_TRUE(wire::Parse(message, request));
    const v1::ShardRows& rows = request.rows();
    const int64_t row_bytes = wire::TensorRowBytes(spec, rows.tensor());
    ASSERT_GT(rows.rows(), 0);
    ASSERT_EQ(static_cast<int64_t>(rows.payload().size()), rows.rows() * row_bytes);
    ASSERT_EQ(rows.crc32c(), wire::Crc32c(rows.payload()));
    ASSERT_LE(message.Length(), static_cast<size_t>(wire::kMaxMessageBytes));
    ASSERT_TRUE(rows.local_rows_size() == 0 || rows.local_rows_size() == rows.rows());
    for (int64_t i = 0; i < rows.rows(); ++i) {
      int64_t token = 0;
      std::memcpy(&token, rows.payload().data() + i * row_bytes, sizeof(token));
      const int64_t local = rows.local_rows_size() > 0 ? rows.local_rows(static_cast<int>(i))
                                                       : rows.first_local_row() + i;
      ASSERT_TRUE(places[rank].emplace(local, token).second);
    }
  }
}

void Deliver(const JobSpec& spec, const RowRouter& router, const v1::Chunk& chunk, Places& places) {
  wire::SlicePool pool(MostPayloadBytes(RowSizes(spec), MostRows(spec)));
  std::map<int, RowMessages> messages;
  wire::Payload payload;
  for (size_t at = 0; at < chunk.payload().size(); at += 1000) {
    payload.Append(std::string_view(chunk.payload()).substr(at, 1000));
  }
  wire::PayloadReader reader(payload);
  int64_t rows = 0;
  for (const RowRun& run : router.Runs(chunk.tensor(), chunk.first_row(), chunk.rows())) {
    messages.try_emplace(run.rank, chunk.tensor(), wire::TensorRowBytes(spec, chunk.tensor()), pool)
        .first->second.Add(run, reader);
    rows += run.rows;
  }
  ASSERT_EQ(rows, chunk.rows());
  for (auto& [rank, of_rank] : messages) Deliver(spec, rank, of_rank.Take(), places);
}

TEST(RowRouter, EveryRowReachesItsSlotOnce) {
  std::mt19937_64 random(21);
  for (int trial = 0; trial < 150; ++trial) {
    JobSpec spec = hilbert_ring::testing::RandomSpec(random);
    if (trial % 3 == 0) hilbert_ring::testing::MakeRectangular(spec, random);
    const int workers = 1 + static_cast<int>(random() % 6);
    const auto coords = hilbert_ring::testing::RandomCoords(spec, random);
    const auto order = Permutation::Make(spec, coords);
    ASSERT_TRUE(order.ok()) << order.status();
    const auto plan = MakePlan(spec, workers);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const RowRouter router(spec, *plan, *order);
    for (const v1::Tensor tensor : kInputTensors) {
      const int64_t tokens = tensor == v1::TENSOR_Q ? spec.tokens : KeyTokens(spec);
      const Shards& shards = plan->ShardsOf(*wire::TensorKindOf(tensor));
      Places places(workers);
      for (int64_t first = 0; first < tokens;) {
        const int64_t rows =
            std::min<int64_t>(tokens - first, 1 + static_cast<int64_t>(random() % 90));
        Deliver(spec, router, NumberedRows(spec, tensor, first, rows), places);
        first += rows;
      }
      const bool slots_are_tokens =
          !spec.ordering ||
          (tensor == v1::TENSOR_Q && (spec.ordering->scope == OrderScope::kKv || plan->rectangle));
      for (int64_t slot = 0; slot < tokens; ++slot) {
        int64_t token = slot;
        if (!slots_are_tokens) (*order)->Tokens(slot, {&token, 1});
        const ShardRange& range = shards.Find(slot);
        const auto place = places[range.rank].find(range.LocalRow(slot));
        ASSERT_NE(place, places[range.rank].end());
        ASSERT_EQ(place->second, token);
        const RowRun found = router.Find(tensor, token);
        ASSERT_EQ(found.rank, range.rank);
        ASSERT_EQ(found.local_row, range.LocalRow(slot));
      }
    }
  }
}

TEST(RowRouter, OrderPartsHoldTheTokensOfEverySlot) {
  JobSpec spec = PlainSpec({.tokens = 700'000, .heads = 1, .dim = 8, .segment = 1024});
  spec.ordering = Ordering{};
  const auto order = Permutation::Make(spec, {});
  ASSERT_TRUE(order.ok());
  const Plan plan = *MakePlan(spec, 1);
  const RowRouter router(spec, plan, *order);
  std::vector<int64_t> tokens(spec.tokens, -1);
  int parts = 0;
  wire::SlicePool pool(MostPayloadBytes(RowSizes(spec), MostRows(spec)));
  EXPECT_TRUE(router.SendOrder(0, pool, [&](grpc::ByteBuffer message) {
    ++parts;
    EXPECT_LE(message.Length(), static_cast<size_t>(wire::kMaxMessageBytes));
    v1::RunRequest request;
    EXPECT_TRUE(wire::Parse(message, request));
    const v1::OrderPart& part = request.order();
    std::memcpy(tokens.data() + part.first_local_row(), part.tokens().data(), part.tokens().size());
    return true;
  }));
  EXPECT_GT(parts, 1);
  std::vector<int64_t> expected(spec.tokens);
  (*order)->Tokens(0, expected);
  EXPECT_EQ(tokens, expected);
  EXPECT_FALSE(router.SendOrder(0, pool, [](const grpc::ByteBuffer&) { return false; }));
  const ShardLayout layout(plan, 0);
  std::vector<std::byte> memory(layout.bytes());
  const HostShard shard(memory.data(), layout);
  router.WriteOrder(0, shard);
  EXPECT_TRUE(std::ranges::equal(shard.tokens(), expected));
}

// Coordinates number the positions of keys: of both scopes, and of rectangles with a sequence that
// has no queries, in memory and in messages.
TEST(RowRouter, CoordinatesLieAtTheRowsOfTheirPositions) {
  JobSpec spec = PlainSpec({.tokens = 700, .heads = 1, .dim = 8, .segment = 64});
  spec.alibi = Alibi{{1.0}, 2};
  JobSpec rectangle = spec;
  rectangle.sequence_lengths = {300, 0, 400};
  rectangle.key_tokens = 1000;
  rectangle.key_sequence_lengths = {500, 100, 400};
  for (JobSpec job : {spec, rectangle}) {
    for (const int scope : {0, 1, 2}) {
      job.ordering.reset();
      if (scope > 0) job.ordering.emplace().scope = scope == 1 ? OrderScope::kQkv : OrderScope::kKv;
      const auto order = Permutation::Make(job, {});
      const Plan plan = *MakePlan(job, 3);
      std::vector<float> coordinates;
      for (int64_t i = 0; i < 2 * KeyTokens(job); ++i) coordinates.push_back(static_cast<float>(i));
      const RowRouter router(job, plan, *order, coordinates);
      for (int rank = 0; rank < 3; ++rank) {
        const ShardLayout layout(plan, rank);
        std::vector<std::byte> memory(layout.bytes()), sent(layout.bytes());
        const HostShard shard(memory.data(), layout), copy(sent.data(), layout);
        router.WriteOrder(rank, shard);
        wire::SlicePool pool(MostPayloadBytes(RowSizes(job), MostRows(job)));
        int64_t numbers = 0;
        EXPECT_TRUE(router.SendOrder(rank, pool, [&](grpc::ByteBuffer message) {
          v1::RunRequest request;
          EXPECT_TRUE(wire::Parse(message, request));
          const v1::OrderPart& part = request.order();
          void* const to =
              part.coordinates()
                  ? static_cast<void*>(copy.Row(TensorKind::kBiasCoords, part.first_local_row()))
                  : copy.tokens().data() + part.first_local_row();
          std::memcpy(to, part.tokens().data(), part.tokens().size());
          numbers += static_cast<int64_t>(part.tokens().size()) / 8;
          return true;
        }));
        EXPECT_EQ(numbers, layout.tokens() + layout.rows(TensorKind::kBiasCoords));
        EXPECT_EQ(memory, sent);
        const auto position_at = [&](int64_t row) {
          float x = 0;
          std::memcpy(&x, shard.Row(TensorKind::kBiasCoords, row), sizeof(x));
          return static_cast<int64_t>(x) / 2;
        };
        const int64_t keys = layout.rows(TensorKind::kK);
        const int64_t first = plan.shards.OfRank(rank)[0].begin;
        for (int64_t row = 0; row < keys; ++row) {
          EXPECT_EQ(position_at(row), scope > 0 ? shard.tokens()[row] : first + row);
        }
        if (!HasQueryCoordinates(job)) continue;
        const int64_t first_query = plan.ShardsOf(TensorKind::kQ).OfRank(rank)[0].begin;
        for (int64_t row = 0; row < layout.rows(TensorKind::kQ); ++row) {
          for (const SequencePair& pair : SequencePairs(job)) {
            const int64_t query = first_query + row - pair.queries.begin;
            if (query < 0 || query >= pair.queries.length) continue;
            EXPECT_EQ(position_at(keys + row), pair.keys.begin + pair.shift + query);
          }
        }
      }
    }
  }
}

// Rows have 16 bytes: their numbers take as much space as the rows.
TEST(RowRouter, MessagesOfNarrowRowsStayWithinTheLimit) {
  JobSpec spec = PlainSpec({.tokens = int64_t{1} << 18, .heads = 1, .dim = 8, .segment = 1024});
  spec.dtype = DataType::kBFloat16;
  spec.ordering = Ordering{};
  const auto order = Permutation::Make(spec, {});
  for (const int workers : {1, 3}) {
    const Plan plan = *MakePlan(spec, workers);
    const RowRouter router(spec, plan, *order);
    Places places(workers);
    const int64_t rows = wire::kMaxPayloadBytes / 16;
    Deliver(spec, router, NumberedRows(spec, v1::TENSOR_K, 0, rows), places);
    size_t delivered = 0;
    for (const auto& rank : places) delivered += rank.size();
    EXPECT_EQ(static_cast<int64_t>(delivered), rows);
  }
}

// Two slides of 3 and 4 tiles; their class tokens are tokens 0 and 4.
TEST(RowRouter, TilesGoBehindTheClassTokensOfTheirSlides) {
  const std::vector<int64_t> tiles = {3, 4};
  RowSizes sizes;
  sizes.Set(TensorKind::kTiles, 8);
  const auto slides = std::make_shared<SlideRows>(tiles, 1);
  const JobShape shape(PlainSpec({.tokens = 9}), sizes, slides);
  const Plan plan{.shards = Shards::Make(
                      2, {{.begin = 0, .end = 2, .rank = 0}, {.begin = 2, .end = 9, .rank = 1}})};
  const RowRouter router(shape, plan, nullptr);
  const std::vector<RowRun> runs = router.Runs(v1::TENSOR_TILES, 0, 7);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].rank, 0);  // token 1
  EXPECT_EQ(runs[0].local_row, 1);
  EXPECT_EQ(runs[0].rows, 1);
  EXPECT_EQ(runs[1].rank, 1);  // tokens 2 and 3
  EXPECT_EQ(runs[1].local_row, 0);
  EXPECT_EQ(runs[1].rows, 2);
  EXPECT_EQ(runs[2].local_row, 3);  // tokens 5 to 8
  EXPECT_EQ(runs[2].rows, 4);
}

}  // namespace
}  // namespace hilbert_ring::server
