#include "server/rows/chunk_ledger.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobSpec Spec() { return PlainSpec({.tokens = 10, .heads = 1, .dim = 8}); }

absl::Status Accept(ChunkLedger& ledger, const v1::Chunk& chunk) {
  return ledger.Accept(chunk, wire::Payload(chunk.payload()));
}

v1::Chunk Rows(v1::Tensor tensor, int64_t first, int64_t rows, int64_t row_bytes = 32) {
  v1::Chunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_first_row(first);
  chunk.set_rows(rows);
  chunk.set_payload(std::string(rows * row_bytes, 'r'));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  return chunk;
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code, const char* reason,
                   const char* text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_EQ(wire::ReasonOf(status), reason);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(ChunkLedger, TakesRowsInAnyOrder) {
  ChunkLedger ledger(Spec());
  for (const v1::Tensor tensor : {v1::TENSOR_V, v1::TENSOR_Q, v1::TENSOR_K}) {
    EXPECT_TRUE(Accept(ledger, Rows(tensor, 7, 3)).ok());
    EXPECT_TRUE(Accept(ledger, Rows(tensor, 0, 2)).ok());
    EXPECT_FALSE(ledger.CheckComplete().ok());
    EXPECT_TRUE(Accept(ledger, Rows(tensor, 2, 5)).ok());
    EXPECT_TRUE(ledger.Complete(tensor));
  }
  EXPECT_TRUE(ledger.CheckComplete().ok());
}

TEST(ChunkLedger, NamesMissingRows) {
  ChunkLedger ledger(Spec());
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_Q, 0, 10)).ok());
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_K, 0, 4)).ok());
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_K, 6, 4)).ok());
  const absl::Status status = ledger.CheckComplete();
  EXPECT_EQ(wire::ReasonOf(status), "CHUNK_MISSING");
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("K"), HasSubstr("4 to 5")));
}

// A client that closes its side sends nothing again: the loss is not its mistake.
TEST(ChunkLedger, ForgottenRowsAreLostNotMissing) {
  ChunkLedger ledger(Spec());
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    ASSERT_TRUE(Accept(ledger, Rows(tensor, 0, 10)).ok());
  }
  ledger.Forget(v1::TENSOR_K, 2, 6);
  ledger.Forget(v1::TENSOR_K, 4, 8);
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_K, 2, 3)).ok());
  ExpectRefused(ledger.CheckComplete(), absl::StatusCode::kAborted, "ROWS_LOST",
                "3 rows of K, the first are 5 to 7");
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_K, 5, 3)).ok());
  EXPECT_TRUE(ledger.CheckComplete().ok());
  ledger.Forget(v1::TENSOR_V, 0, 10);
  EXPECT_EQ(wire::ReasonOf(ledger.CheckComplete()), "ROWS_LOST");
}

TEST(ChunkLedger, RefusesWrongChunks) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ChunkLedger ledger(Spec());
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_Q, 2, 3)).ok());
  ExpectRefused(Accept(ledger, Rows(v1::TENSOR_Q, 4, 2)), invalid, "CHUNK_MISSHAPEN", "4 to 5");
  ExpectRefused(Accept(ledger, Rows(v1::TENSOR_Q, 8, 3)), invalid, "CHUNK_MISSHAPEN", "10 tokens");
  ExpectRefused(Accept(ledger, Rows(v1::TENSOR_Q, -1, 1)), invalid, "CHUNK_MISSHAPEN", "-1");
  ExpectRefused(Accept(ledger, Rows(v1::TENSOR_OUT, 0, 1)), invalid, "CHUNK_MISSHAPEN", "OUT");
  ExpectRefused(Accept(ledger, Rows(v1::TENSOR_COORDS, 0, 1)), invalid, "CHUNK_MISSHAPEN",
                "COORDS");
  ExpectRefused(Accept(ledger, Rows(v1::TENSOR_K, 0, 2, 31)), invalid, "CHUNK_MISSHAPEN", "62");
  v1::Chunk chunk = Rows(v1::TENSOR_K, 0, 1);
  chunk.set_rows(0);
  ExpectRefused(Accept(ledger, chunk), invalid, "CHUNK_MISSHAPEN", "rows");
  chunk.set_rows(std::numeric_limits<int64_t>::max());
  ExpectRefused(Accept(ledger, chunk), invalid, "CHUNK_MISSHAPEN", "10 tokens");
  chunk = Rows(v1::TENSOR_K, 0, 1);
  (*chunk.mutable_payload())[3] ^= 4;
  ExpectRefused(Accept(ledger, chunk), absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", "K");
  chunk.set_payload(std::string(wire::kMaxPayloadBytes + 1, 'x'));
  ExpectRefused(Accept(ledger, chunk), invalid, "CHUNK_MISSHAPEN", "payload");
  EXPECT_TRUE(Accept(ledger, Rows(v1::TENSOR_K, 0, 10)).ok());
}

TEST(ChunkLedger, CoordinatesComeFirst) {
  JobSpec spec = Spec();
  spec.ordering = Ordering{.coordinate_axes = 2};
  ChunkLedger ledger(spec);
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_COORDS, 0, 9, 8)).ok());
  ExpectRefused(Accept(ledger, Rows(v1::TENSOR_Q, 0, 1)), absl::StatusCode::kInvalidArgument,
                "CHUNK_MISSHAPEN", "COORDS");
  ASSERT_TRUE(Accept(ledger, Rows(v1::TENSOR_COORDS, 9, 1, 8)).ok());
  EXPECT_TRUE(ledger.Complete(v1::TENSOR_COORDS));
  EXPECT_TRUE(Accept(ledger, Rows(v1::TENSOR_Q, 0, 1)).ok());
}

TEST(ChunkLedger, BoundsItsMemory) {
  JobSpec spec = Spec();
  spec.tokens = int64_t{1} << 40;
  ChunkLedger ledger(spec);
  absl::Status status;
  for (int64_t row = 0; status.ok() && row < (int64_t{1} << 21); row += 2) {
    status = Accept(ledger, Rows(v1::TENSOR_Q, row, 1));
  }
  ExpectRefused(status, absl::StatusCode::kInvalidArgument, "CHUNK_MISSHAPEN", "524288");
}

TEST(ChunkLedger, SkipsChecksumsOnRequest) {
  const JobSpec spec = PlainSpec({.tokens = 4});
  v1::Chunk chunk;
  chunk.set_tensor(v1::TENSOR_Q);
  chunk.set_rows(4);
  chunk.set_payload(std::string(4 * wire::TensorRowBytes(spec, v1::TENSOR_Q), 'x'));
  chunk.set_crc32c(7);
  const wire::Payload payload(chunk.payload());
  ChunkLedger ledger{JobShape(spec)};
  EXPECT_TRUE(absl::IsDataLoss(ledger.Accept(chunk, payload)));
  EXPECT_TRUE(ledger.Accept(chunk, payload, Checksum::kChecked).ok());
  EXPECT_TRUE(ledger.Complete(v1::TENSOR_Q));
}

}  // namespace
}  // namespace hilbert_ring::server
