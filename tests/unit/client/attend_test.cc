#include "client/cpp/attend.h"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_service.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Attend, SendsInputsAndPlacesOutputs) {
  const FakeService service({.queued = 2});
  EchoJob job;
  AttendProgress last;
  int worst_queue = 0;
  const auto report = job.Attend(
      service.address(),
      {.job_id = "night-17", .chunk_bytes = 1000, .progress = [&](const AttendProgress& progress) {
         last = progress;
         worst_queue = std::max(worst_queue, progress.jobs_before);
       }});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->job_id(), "night-17");
  EXPECT_TRUE(job.echoed());
  for (int64_t token = 0; token < 50; ++token) {
    float values[2];
    std::memcpy(values, job.lse_.data() + token * 8, 8);
    EXPECT_EQ(values[0], static_cast<float>(token));
    EXPECT_EQ(values[1], static_cast<float>(token));
  }
  const FakeRecord record = service.record();
  EXPECT_TRUE(record.open.want_lse());
  EXPECT_EQ(record.open.job_id(), "night-17");
  EXPECT_EQ(*wire::DecodeJobSpec(record.open.spec()), job.spec_);
  EXPECT_TRUE(record.checksums_right);
  EXPECT_EQ(record.tensors.at(v1::TENSOR_K), EchoJob::Text(job.k_));
  EXPECT_EQ(record.tensors.at(v1::TENSOR_V), EchoJob::Text(job.v_));
  EXPECT_EQ(worst_queue, 2);
  EXPECT_EQ(last.workers, 2);
  EXPECT_EQ(last.bytes_sent, last.bytes_to_send);
  EXPECT_EQ(last.rows_placed, 50);
  EXPECT_EQ(last.compute_fraction, 0.5);
}

TEST(Attend, FewRowsFollowAtOnceAndOutputsMayComeWithTheReport) {
  for (const bool admitted : {true, false}) {  // a report without Admitted counts as admission
    const FakeService service({.outputs_with_report = true, .leave_out_admitted = !admitted});
    EchoJob job;
    JobProgress last;
    AttendOptions options;
    options.progress = [&last](const JobProgress& progress) { last = progress; };
    const auto report = job.Attend(service.address(), options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(service.record().open.input_follows());
    EXPECT_TRUE(service.record().open.one_answer());
    EXPECT_TRUE(job.echoed());
    EXPECT_TRUE(last.admitted);
    EXPECT_EQ(last.workers, admitted ? 2 : 1);
  }
}

// A newer service may send other messages.
TEST(Attend, AKindOfMessageThatIsNewerIsPassedOver) {
  v1::AttendResponse newer;
  newer.GetReflection()->MutableUnknownFields(&newer)->AddVarint(1000, 1);
  EchoJob job;
  const auto report = job.Attend({.after_admitted = newer});
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
}

TEST(Attend, ChunksFollowTheServicesLimit) {
  const FakeService service({.max_payload_bytes = 3000});
  EchoJob job(4000);  // more than a client may send before it knows the limit
  ASSERT_TRUE(job.Attend(service.address()).ok());
  for (const v1::Chunk& chunk : service.record().chunks) EXPECT_LE(chunk.rows() * 128, 3000);
  // A row of 128 bytes is never cut.
  EXPECT_EQ(job.Attend({.max_payload_bytes = 100}).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Attend, ReaderNeverBlocksTheSender) {
  // 96 MiB each way at once: more than all buffers hold.
  EchoJob job(1 << 17, 4);
  const FakeService service({.output_while_receiving = true});
  const auto report =
      Attend(Connect(service.address()), job.inputs(), {.out = job.out_}, AttendOptions{});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
}

TEST(Attend, ErrorOfTheServiceInMidStreamEndsTheSender) {
  EchoJob job(1 << 16);
  const absl::Status status =
      job.Attend({.fail = grpc::Status(grpc::StatusCode::ABORTED, "a worker died"),
                  .fail_after_chunks = 2})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "a worker died");
}

TEST(Attend, DeadlineEndsACallThatStalls) {
  EchoJob job(1 << 17);  // more than the buffers of a stream hold: the sender stalls too
  const absl::Time begin = absl::Now();
  const absl::Status status =
      job.Attend({.stall = true}, {.deadline = absl::Milliseconds(300)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), StartsWith("the job's deadline of 300ms passed: "));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST(Attend, CanBeCancelled) {
  EchoJob job(1 << 17);
  std::atomic<bool> cancelled = false;
  std::jthread later([&cancelled] {
    absl::SleepFor(absl::Milliseconds(200));
    cancelled = true;
  });
  const absl::Status status =
      job.Attend({.stall = true}, {.cancelled = [&cancelled] { return cancelled.load(); }})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "the caller ended the job");
}

TEST(Attend, ContradictionsAreFoundBeforeAnythingIsSent) {
  EchoJob job;
  const auto attend = [&job](const AttendInputs& inputs, const AttendOutputs& outputs) {
    return Attend(Connect("127.0.0.1:1"), inputs, outputs).status();
  };
  AttendOutputs outputs = job.outputs();
  outputs.out = outputs.out.first(100);
  EXPECT_THAT(std::string(attend(job.inputs(), outputs).message()),
              HasSubstr("OUT: has 100 bytes, must have 6400"));
  outputs = job.outputs();
  outputs.lse = outputs.lse.first(4);
  EXPECT_THAT(std::string(attend(job.inputs(), outputs).message()), HasSubstr("LSE: has 4 bytes"));
  AttendInputs inputs = job.inputs();
  inputs.spec.head_dim = 9;
  EXPECT_EQ(attend(inputs, job.outputs()).code(), absl::StatusCode::kInvalidArgument);
  const std::string nowhere = "127.0.0.1:1";
  EXPECT_THAT(std::string(job.Attend(nowhere, {.max_attempts = 0}).status().message()),
              HasSubstr("max_attempts is 0"));
  EXPECT_THAT(std::string(job.Attend(nowhere, {.attempt = -1}).status().message()),
              HasSubstr("attempt is -1"));
}

}  // namespace
}  // namespace hilbert_ring::client
