// Attend over a service that loses rows and requests them again.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/manual_timing.h"
#include "tests/unit/client/resend_request.h"

namespace hilbert_ring::client {
namespace {

constexpr int64_t kManyTokens = 1 << 13;  // 3 MiB of input, in 12 chunks of 256 KiB

int64_t RowsOf(const FakeRecord& record, v1::Tensor tensor) {
  int64_t rows = 0;
  for (const v1::Chunk& chunk : record.chunks) {
    if (chunk.tensor() == tensor) rows += chunk.rows();
  }
  return rows;
}

// (tokens, chunks until the request): input right after Open and input after Admitted; requests in
// mid-stream and after the last row.
class AttendResendRows : public ::testing::TestWithParam<std::pair<int64_t, int>> {
 protected:
  int64_t tokens() const { return GetParam().first; }
  FakeBehaviour AskFor(std::vector<v1::Resend> resends) const {
    return {.resends = std::move(resends), .resend_after_chunks = GetParam().second};
  }
};

TEST_P(AttendResendRows, EachTensorCanBeAskedForAgain) {
  EchoJob job(tokens());
  job.spec_.ordering = Ordering{.coordinate_axes = 2};
  AttendInputs inputs = job.inputs();
  const auto coordinate = [](int64_t row, int64_t axis) {
    return static_cast<uint32_t>(row * 2 + axis);
  };
  inputs.coordinates = [&](int64_t first_row, std::span<uint32_t> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = coordinate(first_row, static_cast<int64_t>(i));
    }
  };
  // The requested rows are in the first chunks, so that they have always arrived before.
  const FakeService service(
      AskFor({Request(v1::TENSOR_Q, {{3, 4}, {0, 1}}), Request(v1::TENSOR_COORDS, {{1, 20}}),
              Request(v1::TENSOR_K, {{7, 40}}), Request(v1::TENSOR_Q, {{9, 2}}),
              Request(v1::TENSOR_V, {{0, 2}, {10, 1}, {12, 3}})}));
  const auto report = Attend(Connect(service.address()), inputs, job.outputs(),
                             {.max_attempts = 1, .chunk_bytes = 256 << 10});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
  const FakeRecord record = service.record();
  EXPECT_TRUE(record.open.can_resend());
  EXPECT_TRUE(record.checksums_right);
  EXPECT_EQ(record.tensors.at(v1::TENSOR_Q), EchoJob::Text(job.q_));
  EXPECT_EQ(record.tensors.at(v1::TENSOR_K), EchoJob::Text(job.k_));
  EXPECT_EQ(record.tensors.at(v1::TENSOR_V), EchoJob::Text(job.v_));
  std::vector<uint32_t> coordinates(static_cast<size_t>(tokens() * 2));
  inputs.coordinates(0, coordinates);
  EXPECT_EQ(record.tensors.at(v1::TENSOR_COORDS),
            EchoJob::Text(std::as_bytes(std::span(coordinates))));
  EXPECT_EQ(RowsOf(record, v1::TENSOR_COORDS), tokens() + 20);
  EXPECT_EQ(RowsOf(record, v1::TENSOR_Q), tokens() + 7);
  EXPECT_EQ(RowsOf(record, v1::TENSOR_K), tokens() + 40);
  EXPECT_EQ(RowsOf(record, v1::TENSOR_V), tokens() + 6);
}

INSTANTIATE_TEST_SUITE_P(All, AttendResendRows,
                         ::testing::Values(std::pair<int64_t, int>{50, 3},
                                           std::pair<int64_t, int>{kManyTokens, 3},
                                           std::pair<int64_t, int>{kManyTokens, 12}));

constexpr int kAllSmall = 2;
constexpr int kAllMany = 11;

TEST(AttendResend, TellsWhichBytesWereSentAndSentAgain) {
  EchoJob job;
  const FakeService service(
      {.resends = {Request(v1::TENSOR_K, {{4, 6}, {20, 1}})}, .resend_after_chunks = 5});
  std::vector<std::pair<int64_t, int64_t>> sent;  // ranges of K
  AttendInputs inputs = job.inputs();
  inputs.sent = [&sent](v1::Tensor tensor, int64_t begin, int64_t end) {
    if (tensor == v1::TENSOR_K) sent.emplace_back(begin / 128, end / 128);
  };
  // A chunk has 30 rows of 128 bytes.
  ASSERT_TRUE(
      Attend(Connect(service.address()), inputs, job.outputs(), {.chunk_bytes = 3900}).ok());
  EXPECT_EQ(sent, (Ranges{{0, 30}, {30, 50}, {4, 10}, {20, 21}}));
}

TEST(AttendResend, OnlyAClientThatCannotClosesItsSideBeforeTheReport) {
  for (const int64_t tokens : {int64_t{50}, kManyTokens}) {
    for (const bool can : {false, true}) {
      EchoJob job(tokens);
      const FakeService service({.await_close = can});
      const auto report = job.Attend(
          service.address(), {.max_attempts = 1, .deadline = absl::Seconds(30), .can_resend = can});
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_TRUE(job.echoed());
      EXPECT_EQ(service.record().open.can_resend(), can);
      EXPECT_FALSE(service.record().closed_early);
    }
  }
}

TEST(AttendResend, ALaterAttemptIsAskedByItsOwnNumber) {
  EchoJob job;
  ManualTiming timing;
  const FakeService service(
      {.resends = {Request(v1::TENSOR_V, {{0, 9}}, 1)},
       .resend_after_chunks = kAllSmall,
       .earlier_calls = {{.refuse = grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone")}}});
  const auto report = job.Attend(service.address(), {.timing = timing.timing()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(service.record().tensors.at(v1::TENSOR_V), EchoJob::Text(job.v_));
}

TEST(AttendResend, AFailureWhileRowsAreSentAgainEndsTheSender) {
  EchoJob job(kManyTokens);
  const absl::Status status =
      job.Attend({.fail = grpc::Status(grpc::StatusCode::ABORTED, "lost for good"),
                  .fail_after_chunks = kAllMany + 2,
                  .resends = {Request(v1::TENSOR_Q, {{0, kManyTokens}})},
                  .resend_after_chunks = kAllMany},
                 {.deadline = absl::Seconds(30), .chunk_bytes = 256 << 10})
          .status();
  EXPECT_EQ(status.message(), "lost for good");
}

}  // namespace
}  // namespace hilbert_ring::client
