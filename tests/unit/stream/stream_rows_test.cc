// A thread adds rows and another takes them; each wakes the other.
#include "server/stream/stream_rows.h"

#include <algorithm>
#include <future>
#include <map>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kEpochTokens = 8;
constexpr int64_t kTensorRowBytes = 64;  // of each tensor

Epochs EpochsOf(Tail tail = Tail::kMask) {
  JobSpec spec = PlainSpec({.tokens = 0, .heads = 2, .dim = 8, .segment = 4});
  spec.tail = tail;
  return Epochs::Make(spec, {.asked = kEpochTokens, .most_bytes = 1 << 20}).value();
}

std::string RowsFrom(v1::Tensor tensor, int64_t first, int64_t rows) {
  std::string bytes;
  for (int64_t row = first; row < first + rows; ++row) {
    bytes.append(kTensorRowBytes, static_cast<char>(100 * tensor + row));
  }
  return bytes;
}

std::string Whole(const wire::Payload& payload) {
  std::string bytes;
  for (const std::string_view part : payload.parts()) bytes += part;
  return bytes;
}

class StreamRowsTest : public ::testing::Test {
 protected:
  absl::Status Send(v1::Tensor tensor, int64_t first, int64_t rows) {
    const std::string bytes = RowsFrom(tensor, first, rows);
    v1::Chunk chunk;
    chunk.set_tensor(tensor);
    chunk.set_first_row(first);
    chunk.set_rows(rows);
    chunk.set_crc32c(wire::Crc32c(bytes));
    return rows_.Accept(chunk, wire::Payload(bytes), stop_);
  }

  absl::Status SendAll(int64_t first, int64_t rows) {
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
      if (absl::Status status = Send(tensor, first, rows); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::string At(TensorKind tensor, int64_t first, int64_t rows) {
    return Whole(rows_.At(tensor, first, rows));
  }

  void ExpectRefused(const absl::Status& status, const wire::Reason& reason,
                     const std::string& message) {
    EXPECT_EQ(wire::ReasonOf(status), reason.name);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  JobStop stop_;
  const Epochs epochs_ = EpochsOf();
  StreamRows rows_{epochs_};
};

TEST_F(StreamRowsTest, NoMoreRowsThanTwoEpochsAreHeld) {
  ASSERT_TRUE(SendAll(0, kEpochTokens).ok());
  ASSERT_TRUE(SendAll(kEpochTokens, kEpochTokens).ok());
  const auto first = rows_.AwaitEpoch(stop_);
  ASSERT_TRUE(first.ok());
  std::future<absl::Status> more =
      std::async(std::launch::async, [this] { return Send(v1::TENSOR_Q, 2 * kEpochTokens, 1); });
  EXPECT_EQ(At(TensorKind::kQ, 0, 1), RowsFrom(v1::TENSOR_Q, 0, 1));
  rows_.Release(*first);
  EXPECT_TRUE(more.get().ok());
}

TEST_F(StreamRowsTest, AStopEndsTheWaitForRoom) {
  ASSERT_TRUE(SendAll(0, kEpochTokens).ok());
  stop_.Request(wire::ErrorOf(wire::reason::kClientCancelled, "gone"));
  ASSERT_TRUE(SendAll(kEpochTokens, kEpochTokens).ok());  // there is room
  EXPECT_EQ(Send(v1::TENSOR_Q, 2 * kEpochTokens, 1), stop_.why());
  EXPECT_EQ(rows_.AwaitEpoch(stop_).status(), stop_.why());
}

TEST_F(StreamRowsTest, TensorsMustEndTogether) {
  ASSERT_TRUE(SendAll(0, 4).ok());
  ASSERT_TRUE(Send(v1::TENSOR_V, 4, 1).ok());
  ExpectRefused(rows_.End(), wire::reason::kChunkMissing,
                "the stream ended with 5 rows of V and 4 of Q");
}

// Compares correct and wrong chunks in random order with a simple model: a refused chunk changes
// nothing, and each epoch has the sent rows.
TEST(StreamRows, AgreeWithAModel) {
  constexpr v1::Tensor kTensors[] = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const Epochs epochs = EpochsOf(seed % 2 == 0 ? Tail::kMask : Tail::kZero);
    StreamRows rows(epochs);
    const JobStop stop;
    std::map<v1::Tensor, int64_t> come;
    int64_t begin = 0;
    const auto least = [&] {
      return std::min({come[v1::TENSOR_Q], come[v1::TENSOR_K], come[v1::TENSOR_V]});
    };
    const auto take = [&](int64_t count) {
      const auto epoch = rows.AwaitEpoch(stop);
      ASSERT_TRUE(epoch.ok());
      ASSERT_EQ(*epoch, (RowSpan{begin, begin + count})) << "seed " << seed;
      for (const TensorKind kind : kStreamed) {
        ASSERT_EQ(Whole(rows.At(kind, begin, count)), RowsFrom(wire::TensorOf(kind), begin, count));
      }
      rows.Release(*epoch);
      begin += count;
    };
    for (int i = 0; i < 200; ++i) {
      const v1::Tensor tensor = kTensors[random() % 3];
      const bool elsewhere = random() % 16 == 0, damaged = random() % 16 == 0;
      const int64_t first = come[tensor] + (elsewhere ? static_cast<int64_t>(random() % 9) - 4 : 0);
      const auto count = static_cast<int64_t>(random() % (kEpochTokens + 3));
      const std::string bytes = RowsFrom(tensor, std::max<int64_t>(0, first), count);
      v1::Chunk chunk;
      chunk.set_tensor(tensor);
      chunk.set_first_row(first);
      chunk.set_rows(count);
      chunk.set_crc32c(wire::Crc32c(bytes) + (damaged ? 1 : 0));
      const std::string expected = count == 0                               ? "CHUNK_MISSHAPEN"
                                   : first != come[tensor]                  ? "CHUNK_MISSHAPEN"
                                   : first + count - least() > kEpochTokens ? "CHUNK_MISSHAPEN"
                                   : damaged                                ? "CHECKSUM_MISMATCH"
                                                                            : "OK";
      const absl::Status status = rows.Accept(chunk, wire::Payload(bytes), stop);
      ASSERT_EQ(status.ok() ? "OK" : wire::ReasonOf(status), expected) << "seed " << seed;
      if (status.ok()) come[tensor] += count;
      if (least() - begin >= epochs.most_tokens()) take(kEpochTokens);
    }
    for (const v1::Tensor tensor : kTensors) {
      const int64_t missing =
          std::max({come[v1::TENSOR_Q], come[v1::TENSOR_K], come[v1::TENSOR_V]}) - come[tensor];
      if (missing == 0) continue;
      const std::string bytes = RowsFrom(tensor, come[tensor], missing);
      v1::Chunk chunk;
      chunk.set_tensor(tensor);
      chunk.set_first_row(come[tensor]);
      chunk.set_rows(missing);
      chunk.set_crc32c(wire::Crc32c(bytes));
      ASSERT_TRUE(rows.Accept(chunk, wire::Payload(bytes), stop).ok()) << "seed " << seed;
      come[tensor] += missing;
    }
    ASSERT_TRUE(rows.End().ok());
    while (begin < least()) {
      const int64_t left = least() - begin;
      take(left >= epochs.most_tokens() ? kEpochTokens : left);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(*rows.AwaitEpoch(stop), (RowSpan{begin, begin})) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hilbert_ring::server
