#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"
#include "wire/checksum.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

FakeWorker::Action EndWell() {
  return [](const FakeWorker::Here& here) {
    v1::RunResponse response;
    response.mutable_computed()->set_seconds(1e-3);
    here.stream.Write(response);
    response.mutable_figures()->set_tokens(32);
    here.stream.Write(response);
    return grpc::Status::OK;
  };
}

TEST(RogueWorkers, AWorkerThatEndsWithoutItsOutputsIsNamed) {
  for (const bool local : {true, false}) {
    JobRig rig({.local = local});
    rig.worker(1).AtEach(Moment::kHalfOut, EndWell());
    auto client = rig.Send();
    const absl::Status status = rig.Await(*client);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(client->report().retries(), 1);
    EXPECT_EQ(client->WrongRows(), 0);
    EXPECT_EQ(client->RepeatedRows(), 0);
    EXPECT_THAT(rig.Describe(1).reason(), HasSubstr("16 of 64 are missing, from slot 48 on"));
    EXPECT_EQ(rig.failures(1), 1);
    EXPECT_EQ(rig.failures(0), 0);
  }
}

TEST(RogueWorkers, CorruptRowsAreNotForwarded) {
  JobRig rig({.local = false});
  rig.worker(0).AtEach(Moment::kRowsDone, Write([](v1::RunResponse& response) {
                         v1::OutputChunk& chunk = *response.mutable_output();
                         chunk.set_tensor(v1::TENSOR_OUT);
                         chunk.set_rows(1);
                         chunk.set_payload(std::string(2 * 16 * sizeof(float), 'x'));
                         chunk.set_crc32c(wire::Crc32c(chunk.payload()) + 1);
                       }));
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_THAT(rig.Describe(0).reason(), HasSubstr("sent rows of OUT with crc32c "));
}

TEST(RogueWorkers, AStreamThatEndsWellWithoutFiguresIsALostWorker) {
  JobRig rig;
  rig.worker(0).At(Moment::kComputed, [](const auto&) { return grpc::Status::OK; });
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 1);
  EXPECT_EQ(rig.failures(0), 1);
  EXPECT_TRUE(rig.backs_off(0));
  EXPECT_THAT(rig.lines(), Contains(HasSubstr("its stream ended without figures")));
}

TEST(RogueWorkers, AWorkerThatEndsBeforeItHasItsRowsIsLost) {
  JobRig rig({.local = false});
  rig.worker(0).At(Moment::kReady, EndWell());
  auto client = rig.Send(JobRig::Spec(kManyTokens));
  // The coordinator waits up to 5 s for the reason why a stream takes no rows.
  ASSERT_TRUE(rig.time().RunUntil([&] { return client->ended(); }, std::chrono::seconds(5)));
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(rig.failures(0), 1);
  // The transport may still take rows that the worker does not read.
  EXPECT_THAT(rig.Describe(0).reason(), AnyOf(HasSubstr("its stream ended while rows were sent"),
                                              HasSubstr("ended without all rows")));
}

TEST(RogueWorkers, WrongNumbersAreFoundAndNamed) {
  JobRig rig({.settings = {.check_rows = 64}});
  for (int job = 0; job < 2; ++job) {
    rig.worker(1).set_error(job == 0 ? 0 : 1e-3F);
    auto client = rig.Send();
    const absl::Status status = rig.Await(*client);
    if (job == 0) {
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(client->report().rows_checked(), 64);
      continue;
    }
    EXPECT_EQ(wire::ReasonOf(status), "ROW_MISMATCH") << status;
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(rig.worker(1).address() + " sent it"));
    EXPECT_EQ(rig.Phases()[rig.Phases().size() - 2], "checking");
    EXPECT_EQ(rig.worker(1).runs(), 2) << "it is the client's to try again";
  }
  auto third = rig.Send(JobRig::Spec(), {.job_id = "third"});
  EXPECT_EQ(wire::ReasonOf(rig.Await(*third)), "ROW_MISMATCH");
  EXPECT_EQ(rig.Describe(1).state(), v1::ClusterWorker::STATE_QUARANTINED);
  auto fourth = rig.Send(JobRig::Spec(), {.job_id = "fourth"});
  ASSERT_TRUE(rig.Await(*fourth).ok());
  EXPECT_EQ(fourth->report().workers_size(), 1);
}

}  // namespace
}  // namespace hilbert_ring::testing
