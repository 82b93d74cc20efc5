#include "server/stream/epoch_outputs.h"

#include <future>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kEpoch = 8;
constexpr int64_t kOutBytes = 64, kLseBytes = 8;  // of a row

Epochs EpochsOf(bool want_lse) {
  const JobSpec spec = PlainSpec({.tokens = 0, .heads = 2, .dim = 8, .segment = 4});
  return Epochs::Make(spec, {.asked = kEpoch, .most_bytes = 1 << 20, .want_lse = want_lse}).value();
}

// Takes all writes; AwaitTaken waits for `taken`.
class FakeClient : public JobClient {
 public:
  JobStop& stop() override { return stop_; }
  void ReadAhead() override {}
  absl::StatusOr<bool> Read(ClientMessage&, const JobStop&) override { return false; }
  bool AwaitArrived(int64_t /*bytes*/, Input /*input*/) override { return true; }
  absl::Status Write(const v1::AttendResponse& response, const JobStop&) override {
    writes.push_back(response.has_epoch() ? "epoch" : "other");
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                             std::shared_ptr<const void>, Clock::duration, const JobStop&,
                             SendMode) override {
    EXPECT_EQ(chunk.crc32c(), wire::Crc32c(payload));
    (chunk.tensor() == v1::TENSOR_OUT ? out : lse) += payload;
    writes.push_back((chunk.tensor() == v1::TENSOR_OUT ? "OUT " : "LSE ") +
                     std::to_string(chunk.first_token()) + " " + std::to_string(chunk.rows()));
    return true;
  }
  absl::Status AwaitTaken(const JobStop&) override {
    taken.wait();
    return absl::OkStatus();
  }
  void Offer(const v1::AttendResponse&) override {}

  std::vector<std::string> writes;
  std::string out, lse;
  std::shared_future<void> taken;

 private:
  JobStop stop_;
};

v1::OutputChunk Range(v1::Tensor tensor, int64_t first, int64_t rows) {
  v1::OutputChunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_first_token(first);
  chunk.set_rows(rows);
  return chunk;
}

v1::Epoch EpochOf(int64_t first, int64_t tokens) {
  v1::Epoch epoch;
  epoch.set_first_token(first);
  epoch.mutable_report()->set_tokens(tokens);
  return epoch;
}

TEST(EpochOutputs, LeaveInOrderAndTwoEpochsAreHeld) {
  const Epochs epochs = EpochsOf(true);
  FakeClient client;
  std::promise<void> taken;
  client.taken = taken.get_future().share();
  EpochOutputs outputs(epochs, client);
  const JobStop stop;
  auto sender = std::async(std::launch::async, [&] { return outputs.Send(stop); });
  std::string expected;
  for (int i = 0; i < 3; ++i) {
    // The third buffer is the first again, after the transport has taken its rows.
    if (i == 2) taken.set_value();
    const auto buffer = outputs.Await(stop);
    ASSERT_TRUE(buffer.ok());
    const int64_t tokens = i < 2 ? kEpoch : 3;
    const std::string rows(tokens * kOutBytes, static_cast<char>('a' + i));
    ASSERT_TRUE((*buffer)->Place(Range(v1::TENSOR_OUT, 0, tokens), rows).ok());
    expected += rows;
    outputs.Leave(**buffer, EpochOf(i * kEpoch, tokens));
  }
  outputs.End();
  EXPECT_TRUE(sender.get().ok());
  EXPECT_EQ(client.out, expected);
  EXPECT_EQ(client.writes,
            (std::vector<std::string>{"OUT 0 8", "LSE 0 8", "epoch", "OUT 8 8", "LSE 8 8", "epoch",
                                      "OUT 16 3", "LSE 16 3", "epoch"}));
  EXPECT_EQ(outputs.bytes_sent(), 19 * (kOutBytes + kLseBytes));
}

TEST(EpochOutputs, AStopEndsWaits) {
  const Epochs epochs = EpochsOf(false);
  FakeClient client;
  EpochOutputs outputs(epochs, client);
  JobStop stop;
  ASSERT_TRUE(outputs.Await(stop).ok());
  ASSERT_TRUE(outputs.Await(stop).ok());
  auto third = std::async(std::launch::async, [&] { return outputs.Await(stop).status(); });
  auto sender = std::async(std::launch::async, [&] { return outputs.Send(stop); });
  stop.Request(absl::CancelledError("gone"));
  EXPECT_EQ(third.get(), stop.why());
  EXPECT_EQ(sender.get(), stop.why());
}

}  // namespace
}  // namespace hilbert_ring::server
