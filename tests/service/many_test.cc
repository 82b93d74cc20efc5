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

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "client/cpp/attend_many.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/many.grpc.pb.h"
#include "tests/engine/expected_rows.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "tests/unit/many/small_jobs.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

// In float32, with the memory that its results are put in.
struct Job {
  explicit Job(const JobSpec& spec_, uint64_t seed = 1) : spec(spec_) {
    inputs = RandomInputs(spec, seed);
    out.resize(spec.tokens * spec.heads * spec.value_dim);
    lse.resize(spec.tokens * spec.heads);
  }

  client::SmallJob small() {
    client::SmallJob job{.inputs = {.spec = spec,
                                    .q = std::as_bytes(std::span(inputs.q)),
                                    .k = std::as_bytes(std::span(inputs.k)),
                                    .v = std::as_bytes(std::span(inputs.v))},
                         .outputs = {.out = std::as_writable_bytes(std::span(out)),
                                     .lse = std::as_writable_bytes(std::span(lse))}};
    if (!inputs.coords.empty()) {
      job.inputs.coordinates = [this](int64_t first, std::span<uint32_t> values) {
        const int64_t begin = first * spec.ordering->coordinate_axes;
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<uint32_t>(inputs.coords[begin + i]);
        }
      };
    }
    return job;
  }

  // Empty where they are right.
  std::string Wrong() const {
    const auto expected = ExpectRows(spec, inputs);
    if (!expected.ok()) return std::string(expected.status().message());
    return Mismatch(spec, {.out = out, .lse = lse}, *expected);
  }

  JobSpec spec;
  EngineInputs inputs;
  std::vector<float> out, lse;
};

std::vector<client::SmallJob> Small(std::vector<Job>& jobs) {
  std::vector<client::SmallJob> small;
  small.reserve(jobs.size());
  for (Job& job : jobs) small.push_back(job.small());
  return small;
}

// Kinds by turns, of lengths of their own.
std::vector<Job> ManyJobs(int count) {
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i) {
    JobSpec spec = PlainSpec({.tokens = 1 + i * 37 % 211, .heads = 4, .segment = 32});
    spec.branches = {{32, 1}, {64, 2}};
    if (i % 5 == 1) spec.causal = true;
    if (i % 5 == 2) spec.mixing = Mixing::kLse;
    if (i % 5 == 3) {
      spec.tail = Tail::kZero;
      spec.sequence_lengths = {1, spec.tokens};
      spec.tokens += 1;
    }
    if (i % 5 == 4) spec.ordering.emplace().coordinate_axes = 2;
    jobs.emplace_back(spec, i);
  }
  return jobs;
}

class Many : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& further = {}, int workers = 2) {
    auto cluster = Cluster::Start({.workers = workers, .arguments = further});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    stub_ = v1::SmallJobsService::NewStub(cluster_->Channel());
  }

  // Of one call with these messages; also the call's status.
  std::pair<absl::Status, std::vector<v1::SmallResult>> Call(
      const std::vector<v1::AttendManyRequest>& requests) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = stub_->AttendMany(&context);
    for (const auto& request : requests) stream->Write(request);
    stream->WritesDone();
    std::vector<v1::SmallResult> results;
    v1::AttendManyResponse response;
    while (stream->Read(&response)) {
      results.insert(results.end(), response.results().begin(), response.results().end());
    }
    const absl::Status status = wire::FromGrpc(stream->Finish());
    std::ranges::sort(results, {}, &v1::SmallResult::job);
    return {status, results};
  }

  void ExpectNothingHeld() {
    const auto metrics = cluster_->Metrics();
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_THAT(*metrics,
                HasSubstr("hilbert_ring_coordinator_memory_used_bytes{account=\"streams\"} 0\n"));
  }

  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<v1::SmallJobsService::Stub> stub_;
};

TEST_F(Many, JobsAreEachTheirOwn) {
  Start();
  std::vector<Job> jobs = ManyJobs(60);
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
  std::vector<Job> jobs = ManyJobs(10);
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
  std::vector<Job> jobs;
  jobs.reserve(kJobs);
  for (int i = 0; i < kJobs; ++i) {
    jobs.emplace_back(PlainSpec({.tokens = 1, .heads = 1, .segment = 32}), i);
  }
  for (const auto& report : client::AttendMany(cluster_->address(), Small(jobs))) {
    ASSERT_TRUE(report.ok()) << report.status();
  }
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
  std::vector<Job> jobs = ManyJobs(20);
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
  std::vector<Job> jobs = ManyJobs(40);
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
  std::vector<Job> jobs;
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
  std::vector<Job> jobs = ManyJobs(400);
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
