#include "server/many/packed_client.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/unit/many/small_jobs.h"

namespace hilbert_ring::server {
namespace {

using ::hilbert_ring::testing::SmallJobOf;

constexpr int64_t kRowBytes = 2 * 16 * sizeof(float);

class PackedClients : public ::testing::Test {
 protected:
  PackedClients() {
    for (const int64_t tokens : {2, 3}) {
      *request_.add_jobs() =
          SmallJobOf(PlainSpec({.tokens = tokens, .segment = 32}), static_cast<char>(tokens));
    }
    packed_ = Pack(request_, 0);
    client_ = std::make_unique<PackedClient>(packed_[0], stop_);
  }

  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, const std::string& payload) {
    return client_->Write(chunk, payload, nullptr, kAnyPatience, stop_);
  }

  static std::string Rows(const std::string& bytes) {
    std::string rows;
    for (const char byte : bytes) rows += std::string(kRowBytes, byte);
    return rows;
  }

  v1::AttendManyRequest request_;
  std::vector<PackedJobs> packed_;
  JobStop stop_;
  std::unique_ptr<PackedClient> client_;
};

TEST_F(PackedClients, SendOpenAndAllRows) {
  int64_t rows = 0;
  for (int i = 0; i < 7; ++i) {
    ClientMessage message;
    const auto more = client_->Read(message, stop_);
    ASSERT_TRUE(more.ok() && *more) << i;
    ASSERT_EQ(message.request.has_open(), i == 0);
    if (i == 0) continue;
    const v1::Chunk& chunk = message.request.chunk();
    EXPECT_EQ(message.payload.Crc32c(), chunk.crc32c());
    EXPECT_EQ(chunk.first_row(), i < 4 ? 0 : 2);
    rows += chunk.rows();
  }
  EXPECT_EQ(rows, 3 * 5);
  ClientMessage message;
  const auto more = client_->Read(message, stop_);
  ASSERT_TRUE(more.ok());
  EXPECT_FALSE(*more);
}

// A chunk of both jobs, and rows in no order.
TEST_F(PackedClients, CutOutputs) {
  v1::OutputChunk chunk;
  chunk.set_tensor(v1::TENSOR_OUT);
  chunk.set_first_token(1);
  chunk.set_rows(2);
  ASSERT_TRUE(Write(chunk, Rows("bc")).ok());
  chunk.set_rows(3);
  for (const int64_t token : {4, 0, 3}) chunk.add_tokens(token);
  ASSERT_TRUE(Write(chunk, Rows("ead")).ok());
  v1::SmallResult first, second;
  client_->AddOutputs(0, first);
  client_->AddOutputs(1, second);
  ASSERT_EQ(first.outputs_size(), 1);
  EXPECT_EQ(first.outputs(0).payload(), Rows("ab"));
  EXPECT_EQ(first.outputs(0).rows(), 2);
  EXPECT_EQ(second.outputs(0).payload(), Rows("cde"));
  EXPECT_EQ(second.outputs(0).first_token(), 0);
  EXPECT_EQ(second.outputs(0).crc32c(), wire::Crc32c(Rows("cde")));
}

TEST_F(PackedClients, TakeNoRowsBeyondTheJobs) {
  v1::OutputChunk chunk;
  chunk.set_tensor(v1::TENSOR_OUT);
  chunk.set_first_token(4);
  chunk.set_rows(2);
  EXPECT_FALSE(Write(chunk, Rows("xy")).ok());
  chunk.set_first_token(-1);
  EXPECT_FALSE(Write(chunk, Rows("xy")).ok());
}

TEST_F(PackedClients, EndWithTheCall) {
  stop_.Request(absl::CancelledError("gone"));
  ClientMessage message;
  EXPECT_TRUE(absl::IsCancelled(client_->Read(message, stop_).status()));
}

}  // namespace
}  // namespace hilbert_ring::server
