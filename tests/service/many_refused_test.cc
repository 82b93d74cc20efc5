// What a call of many small jobs refuses: jobs that are wrong, one by one, and messages.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "client/cpp/attend_many.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/many_fixture.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/many/small_jobs.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Many, OneThatIsWrongFailsAlone) {
  Start();
  v1::AttendManyRequest request;
  for (int i = 0; i < 7; ++i) {
    *request.add_jobs() = SmallJobOf(PlainSpec({.tokens = 20, .segment = 32}));
  }
  request.mutable_jobs(1)->mutable_rows(2)->set_crc32c(7);
  request.mutable_jobs(2)->mutable_rows(0)->set_first_row(1);
  request.mutable_jobs(3)->mutable_open()->mutable_spec()->set_head_dim(7);
  request.mutable_jobs(4)->mutable_rows()->DeleteSubrange(1, 1);
  request.mutable_jobs(5)->mutable_open()->mutable_spec()->set_value_dim(256);
  request.mutable_jobs(5)->mutable_open()->mutable_spec()->set_tokens(1 << 16);
  const auto [status, results] = Call({request});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(results.size(), 7);
  const std::vector<std::string> reasons = {
      "", "CHECKSUM_MISMATCH", "CHUNK_PAST_END", "INVALID_SPEC", "CHUNK_MISSING", "INVALID_OPEN",
      ""};
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].error().empty(), reasons[i].empty()) << i;
    EXPECT_THAT(results[i].error(), HasSubstr(reasons[i])) << i;
    EXPECT_EQ(results[i].outputs_size(), reasons[i].empty() ? 1 : 0) << i;
  }
  ExpectNothingHeld();
}

TEST_F(Many, FieldsThatAJobOfManyHasNotAreRefused) {
  Start();
  v1::AttendManyRequest request;
  for (int i = 0; i < 3; ++i) {
    *request.add_jobs() = SmallJobOf(PlainSpec({.tokens = 20, .segment = 32}));
  }
  request.mutable_jobs(0)->mutable_open()->add_files()->set_path("q.npy");
  request.mutable_jobs(1)->mutable_open()->set_want_trace(true);
  request.mutable_jobs(2)->mutable_open()->set_epoch_tokens(32);
  const auto [status, results] = Call({request});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(results.size(), 3);
  const std::vector<std::string> fields = {"open.files", "open.want_trace", "open.epoch_tokens"};
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_THAT(results[i].error(), HasSubstr("INVALID_OPEN")) << i;
    EXPECT_THAT(results[i].error(), HasSubstr(fields[i] + " is set")) << i;
  }
}

// A job that is refused is a few bytes, and its line hundreds.
TEST_F(Many, JobsThatFailDoNotFloodTheLog) {
  auto cluster = Cluster::Start({.workers = 1, .log_files = true});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  cluster_ = *std::move(cluster);
  stub_ = v1::SmallJobsService::NewStub(cluster_->Channel());
  v1::AttendManyRequest request;
  for (int i = 0; i < 300; ++i) request.add_jobs()->mutable_open()->mutable_spec();
  const auto [status, results] = Call({request});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(results.size(), 300);
  for (const v1::SmallResult& result : results) EXPECT_FALSE(result.error().empty());
  ASSERT_TRUE(cluster_->Stop().ok());
  int jobs = 0;
  const std::string logs = cluster_->Logs();
  for (const absl::string_view line : absl::StrSplit(logs, '\n')) {
    if (absl::StrContains(line, "job ended: ") && absl::StrContains(line, "error=")) ++jobs;
    if (!absl::StrContains(line, "call of many jobs ended")) continue;
    EXPECT_THAT(std::string(line), HasSubstr("failed=300"));
  }
  EXPECT_EQ(jobs, 16);
  EXPECT_THAT(cluster_->Logs(), HasSubstr("call of many jobs ended"));
}

TEST_F(Many, ACallerHearsWhichOneWasWrong) {
  Start();
  std::vector<ExpectedJob> jobs = ManyJobs(10);
  std::vector<client::SmallJob> small = Small(jobs);
  small[3].inputs.q = small[3].inputs.q.subspan(4);  // seen here
  small[4].job_id = std::string(1000, 'x');          // by the service
  const auto reports = client::AttendMany(cluster_->address(), small);
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(reports[i].ok(), i != 3 && i != 4) << i << ": " << reports[i].status();
  }
  EXPECT_THAT(std::string(reports[3].status().message()), HasSubstr("Q: has"));
  EXPECT_EQ(wire::ReasonOf(reports[4].status()), "INVALID_OPEN");
}

TEST_F(Many, ACallMayHaveNoJobsAndMustBeOfSuchMessages) {
  Start();
  EXPECT_TRUE(Call({}).first.ok());
  EXPECT_TRUE(Call({v1::AttendManyRequest()}).first.ok());
  EXPECT_TRUE(client::AttendMany(cluster_->address(), {}).empty());
  v1::AttendManyRequest odd;
  odd.GetReflection()->MutableUnknownFields(&odd)->AddVarint(1, 7);  // in the place of jobs
  const auto [status, results] = Call({odd});
  EXPECT_TRUE(status.ok() || wire::ReasonOf(status) == "MALFORMED") << status;
  EXPECT_TRUE(results.empty());
}

TEST_F(Many, AMessageHasAtMostSoManyJobsAndClientsSendNoMore) {
  Start();
  v1::AttendManyRequest request;
  for (int i = 0; i < wire::kMostSmallJobs + 1; ++i) request.add_jobs();
  EXPECT_EQ(wire::ReasonOf(Call({request}).first), "MALFORMED");
  request.mutable_jobs()->RemoveLast();
  const auto [status, results] = Call({request});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::ssize(results), wire::kMostSmallJobs);  // all wrong, each for itself

  constexpr int kJobs = 2 * wire::kMostSmallJobs + 1;
  std::vector<ExpectedJob> jobs;
  jobs.reserve(kJobs);
  for (int i = 0; i < kJobs; ++i) {
    jobs.emplace_back(PlainSpec({.tokens = 1, .heads = 1, .segment = 32}), i);
  }
  for (const auto& report : client::AttendMany(cluster_->address(), Small(jobs))) {
    ASSERT_TRUE(report.ok()) << report.status();
  }
}

}  // namespace
}  // namespace hilbert_ring::testing
