// Messages of a kind that does not belong to the call in which they come.
#include <cmath>
#include <future>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/attend_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_service.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::StartsWith;

void ExpectBroken(const absl::Status& status, const char* words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("the service broke the protocol: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

v1::AttendResponse Epoch() {
  v1::AttendResponse response;
  response.mutable_epoch()->set_first_token(0);
  return response;
}

// After the stream was admitted. Its one block is sent, and a second one is waited for.
absl::Status StreamWith(const v1::AttendResponse& odd, int64_t* taken = nullptr) {
  const FakeService service({.after_admitted = {odd}});
  const EchoJob job(16);
  AttendStreamCalls calls{.spec = job.spec_};
  calls.spec.tokens = 0;
  calls.next = [&job, sent = false](const std::stop_token& over) mutable {
    std::optional<StreamBlock> block;
    if (!std::exchange(sent, true)) block = {.rows = 16, .q = job.q_, .k = job.k_, .v = job.v_};
    while (!block && !over.stop_requested()) std::this_thread::yield();
    return absl::StatusOr<std::optional<StreamBlock>>(block);
  };
  calls.take = [taken](const StreamedRows& rows) {
    if (taken != nullptr) *taken += rows.rows;
    return absl::OkStatus();
  };
  return AttendStream(Connect(service.address()), calls, {.deadline = absl::Seconds(20)}).status();
}

TEST(OddMessages, AnEpochOfAJobIsABreachOfTheProtocol) {
  ExpectBroken(EchoJob().Attend({.after_admitted = {Epoch()}}).status(), "an epoch");
}

// 25 MB: more than leaves before somebody reads it.
TEST(OddMessages, AReportBeforeTheInputIsABreachOfTheProtocol) {
  v1::AttendResponse report;
  report.mutable_report()->set_tokens(1 << 16);
  ExpectBroken(EchoJob(1 << 16).Attend({.after_admitted = {report}, .stall = true}).status(),
               "a report before all rows were sent");
}

TEST(OddMessages, WhatIsAJobsIsABreachInAStream) {
  v1::AttendResponse queued;
  queued.mutable_queued()->set_position(1);
  ExpectBroken(StreamWith(queued), "queue");
  v1::AttendResponse progress;
  progress.mutable_progress()->set_fraction(0.5);
  ExpectBroken(StreamWith(progress), "progress");
  v1::AttendResponse resend;
  resend.mutable_resend()->set_tensor(v1::TENSOR_Q);
  ExpectBroken(StreamWith(resend), "asked for again");
}

TEST(OddMessages, RowsThatAStreamDidNotSendAreNotTaken) {
  const JobSpec spec = EchoJob().spec_;
  v1::AttendResponse output;
  v1::OutputChunk& chunk = *output.mutable_output();
  chunk.set_tensor(v1::TENSOR_OUT);
  chunk.set_rows(17);
  chunk.set_payload(std::string(17 * wire::TensorRowBytes(spec, v1::TENSOR_OUT), 'x'));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  int64_t taken = 0;
  ExpectBroken(StreamWith(output, &taken), "17 rows from 0 on, of which");
  EXPECT_EQ(taken, 0);
}

TEST(OddMessages, AStreamThatEndsBeforeItsInputIsNotDone) {
  v1::AttendResponse report;
  report.mutable_report()->set_tokens(0);
  std::promise<void> asked;
  const FakeService service(
      {.after_admitted = {report}, .end_of_stream = [&asked] { asked.get_future().wait(); }});
  AttendStreamCalls calls{.spec = EchoJob(16).spec_};
  calls.spec.tokens = 0;
  calls.next = [&asked](const std::stop_token& over) -> absl::StatusOr<std::optional<StreamBlock>> {
    asked.set_value();
    while (!over.stop_requested()) std::this_thread::yield();
    return std::nullopt;
  };
  calls.take = [](const StreamedRows&) { return absl::OkStatus(); };
  ExpectBroken(
      AttendStream(Connect(service.address()), calls, {.deadline = absl::Seconds(20)}).status(),
      "before its input");
}

TEST(OddMessages, ProgressThatIsNoFractionIsPassedOver) {
  std::vector<v1::AttendResponse> odd(5);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (size_t i = 0; const double fraction : {0.5, nan, 1e300, -1.0, HUGE_VAL}) {
    odd[i].mutable_progress()->set_phase(v1::Progress::PHASE_COMPUTE);
    odd[i++].mutable_progress()->set_fraction(fraction);
  }
  std::vector<double> told;
  EchoJob job;
  const auto report =
      job.Attend({.after_admitted = odd}, {.progress = [&told](const AttendProgress& progress) {
                   told.push_back(progress.compute_fraction);
                 }});
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(told, Each(AllOf(Ge(0), Le(1))));
  EXPECT_THAT(told, Contains(0.5));
}

// A service that is newer than this client may say more.
TEST(OddMessages, AKindOfMessageThatIsNewerIsPassedOver) {
  v1::AttendResponse newer;
  newer.GetReflection()->MutableUnknownFields(&newer)->AddVarint(1000, 1);
  EchoJob job;
  const auto report = job.Attend({.after_admitted = {newer}});
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
}

}  // namespace
}  // namespace hilbert_ring::client
