// Many small jobs in one call, each against its own expectation.
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/attend_many.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/many.grpc.pb.h"
#include "tests/service/many_fixture.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "tests/unit/many/small_jobs.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Many, JobsAreEachTheirOwn) {
  Start();
  std::vector<ExpectedJob> jobs = ManyJobs(60);
  // Several messages, jobs of which are computed at once.
  const auto reports =
      client::AttendMany(cluster_->address(), Small(jobs), {.chunk_bytes = 100'000});
  ASSERT_EQ(reports.size(), jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(reports[i].ok()) << i << ": " << reports[i].status();
    EXPECT_EQ(reports[i]->tokens(), jobs[i].spec.tokens);
    EXPECT_EQ(jobs[i].Wrong(), "") << i;
  }
  ExpectNothingHeld();
}

TEST_F(Many, JobsThatAreAlikeAreComputedTogether) {
  Start();
  v1::AttendManyRequest request;
  for (const int64_t tokens : {10, 20, 30}) {
    *request.add_jobs() = SmallJobOf(PlainSpec({.tokens = tokens, .segment = 32}));
  }
  *request.add_jobs() = SmallJobOf(PlainSpec({.tokens = 40, .segment = 16}));
  const auto [status, results] = Call({request, request});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(results.size(), 8);
  std::set<std::string> computed_in;
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].job(), i);
    EXPECT_EQ(results[i].packed(), i % 4 == 3 ? 1 : 3);
    EXPECT_EQ(results[i].report().tokens(), 10 + i % 4 * 10);
    EXPECT_EQ(results[i].outputs_size(), 1);
    computed_in.insert(results[i].report().job_id());
  }
  EXPECT_EQ(computed_in.size(), 4);
}

TEST_F(Many, CallsHaveMemoryOfStreams) {
  Start({"--stream-memory=1MiB"});
  v1::AttendManyRequest request;
  request.add_jobs();
  const auto [status, results] = Call({request});
  EXPECT_EQ(wire::ReasonOf(status), "STREAM_MEMORY");
}

// Calls of one caller, which send a message each and then nothing.
class SilentCalls {
 public:
  SilentCalls(v1::SmallJobsService::Stub& stub, int calls, const std::string& token,
              const v1::AttendManyRequest& request) {
    for (int i = 0; i < calls; ++i) {
      contexts_.push_back(std::make_unique<grpc::ClientContext>());
      contexts_.back()->AddMetadata("authorization", "Bearer " + token);
      streams_.push_back(stub.AttendMany(contexts_.back().get()));
      streams_.back()->Write(request);
    }
  }

  // How many calls have a result.
  int Answered() {
    int answered = 0;
    v1::AttendManyResponse response;
    for (const auto& stream : streams_) answered += stream->Read(&response) ? 1 : 0;
    return answered;
  }

  std::map<std::string, int> Reasons() {
    std::map<std::string, int> reasons;
    for (const auto& stream : streams_) ++reasons[wire::ReasonOf(wire::FromGrpc(stream->Finish()))];
    return reasons;
  }

 private:
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<
      std::unique_ptr<grpc::ClientReaderWriter<v1::AttendManyRequest, v1::AttendManyResponse>>>
      streams_;
};

TEST_F(Many, SilentCallsOfACallerKeepNobodyOut) {
  const TestFolder folder;
  const std::string tokens = folder / "tokens";
  std::ofstream(tokens) << R"({"name": "silent", "role": "submit", "token": "0123456789-silent"}
{"name": "other", "role": "submit", "token": "0123456789-other"}
)";
  Start({"--auth-token-file=" + tokens, "--metrics-need-token=false", "--idle-timeout=6"});
  std::vector<ExpectedJob> jobs = ManyJobs(20);
  const auto expect_other_is_served = [&] {
    const auto reports = client::AttendMany(cluster_->address(), Small(jobs),
                                            {.access = {.token = "0123456789-other"}});
    for (const auto& report : reports) EXPECT_TRUE(report.ok()) << report.status();
  };
  SilentCalls empty(*stub_, 64, "0123456789-silent", v1::AttendManyRequest());
  expect_other_is_served();
  EXPECT_EQ(empty.Reasons(), (std::map<std::string, int>{{"OPEN_TIMEOUT", 64}}));
  ExpectNothingHeld();

  v1::AttendManyRequest one;
  *one.add_jobs() = SmallJobOf(PlainSpec({.tokens = 10}));
  SilentCalls begun(*stub_, 64, "0123456789-silent", one);
  EXPECT_EQ(begun.Answered(), 32) << "64 MiB each, half of 4 GiB";
  expect_other_is_served();
  EXPECT_EQ(begun.Reasons(),
            (std::map<std::string, int>{{"CLIENT_IDLE", 32}, {"STREAM_MEMORY", 32}}));
  ExpectNothingHeld();
}

TEST_F(Many, JobsThatFindNoRoomWait) {
  Start({"--max-queue=1"}, 1);
  std::vector<ExpectedJob> jobs = ManyJobs(40);
  const auto small = Small(jobs);
  std::vector<std::vector<absl::StatusOr<v1::Report>>> reports(3);
  {
    std::vector<std::jthread> callers;
    for (size_t i = 0; i < reports.size(); ++i) {
      callers.emplace_back([&, i] {
        auto own = ManyJobs(40);
        reports[i] = client::AttendMany(cluster_->address(), Small(own), {.chunk_bytes = 30'000});
      });
    }
  }
  for (const auto& of : reports) {
    for (const auto& report : of) EXPECT_TRUE(report.ok()) << report.status();
  }
}

TEST_F(Many, JobsBeyondTheCallersQuotaWaitForThoseBefore) {
  const TestFolder folder;
  const std::string tokens = folder / "tokens";
  std::ofstream(tokens)
      << R"({"name": "lab", "role": "submit", "token": "0123456789abcdef-lab", "jobs": 1}
)";
  Start({"--auth-token-file=" + tokens, "--metrics-need-token=false"});
  std::vector<ExpectedJob> jobs;
  jobs.reserve(8);
  for (int i = 0; i < 8; ++i) {
    jobs.emplace_back(PlainSpec({.tokens = 3'000, .heads = 4, .segment = 1'000}), i);
  }
  // A message each, four of which are there at once.
  const auto reports = client::AttendMany(
      cluster_->address(), Small(jobs),
      {.max_attempts = 1, .chunk_bytes = 30'000, .access = {.token = "0123456789abcdef-lab"}});
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(reports[i].ok()) << i << ": " << reports[i].status();
  }
}

// Each would wait as long again, behind jobs of others that wait as well.
TEST_F(Many, JobsThatWaitedTogetherInVainAreNotTriedAlone) {
  Start({"--queue-timeout=1"}, 1);
  const auto stub = cluster_->Stub();
  const JobSpec spec = PlainSpec({.tokens = 100});
  RawCall first(*stub, std::chrono::seconds(60)), beside(*stub, std::chrono::seconds(60));
  ASSERT_TRUE(first.Open(spec) && first.AwaitAdmitted());
  ASSERT_TRUE(beside.Open(spec) && beside.AwaitAdmitted());
  v1::AttendManyRequest request;
  for (int i = 0; i < 5; ++i) {
    *request.add_jobs() = SmallJobOf(PlainSpec({.tokens = 20, .segment = 32}));
  }
  const auto [status, results] = Call({request});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(results.size(), 5);
  for (const v1::SmallResult& result : results) {
    EXPECT_THAT(result.error(), HasSubstr("QUEUE_TIMEOUT"));
  }
  const auto metrics = cluster_->Metrics();
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(*metrics, HasSubstr("{reason=\"QUEUE_TIMEOUT\"} 1\n"));
}

TEST_F(Many, ALostWorkerCostsNoJob) {
  Start();
  std::vector<ExpectedJob> jobs = ManyJobs(400);
  std::jthread killer([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(cluster_->Workers().front(), SIGKILL);
  });
  const auto reports =
      client::AttendMany(cluster_->address(), Small(jobs), {.chunk_bytes = 50'000});
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(reports[i].ok()) << i << ": " << reports[i].status();
    EXPECT_EQ(jobs[i].Wrong(), "") << i;
  }
}

TEST_F(Many, ACallerThatLeavesLeavesNothing) {
  Start();
  {
    grpc::ClientContext context;
    auto stream = stub_->AttendMany(&context);
    v1::AttendManyRequest request;
    for (int i = 0; i < 20; ++i) {
      *request.add_jobs() = SmallJobOf(PlainSpec({.tokens = 100 + i, .heads = 1 + i % 3}));
    }
    for (int i = 0; i < 10; ++i) stream->Write(request);
    v1::AttendManyResponse response;
    EXPECT_TRUE(stream->Read(&response));
    context.TryCancel();
    EXPECT_FALSE(stream->Finish().ok());
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto held = [this] {
    const auto metrics = cluster_->Metrics();
    return !metrics.ok() ||
           metrics->find("memory_used_bytes{account=\"streams\"} 0\n") == std::string::npos;
  };
  while (held() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ExpectNothingHeld();
  EXPECT_TRUE(Call({v1::AttendManyRequest()}).first.ok());
}

}  // namespace
}  // namespace hilbert_ring::testing
