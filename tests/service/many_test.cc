// Many small jobs in one call, each against its own expectation.
#include <chrono>
#include <csignal>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/attend_many.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/many.grpc.pb.h"
#include "tests/engine/expected_rows.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/many/small_jobs.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

// In float32, with the memory that its results are put in.
struct ExpectedJob {
  explicit ExpectedJob(const JobSpec& spec_, uint64_t seed = 1) : spec(spec_) {
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

std::vector<client::SmallJob> Small(std::vector<ExpectedJob>& jobs) {
  std::vector<client::SmallJob> small;
  small.reserve(jobs.size());
  for (ExpectedJob& job : jobs) small.push_back(job.small());
  return small;
}

// Kinds by turns, of lengths of their own.
std::vector<ExpectedJob> ManyJobs(int count) {
  std::vector<ExpectedJob> jobs;
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

  bool NothingHeld() {
    return cluster_->Metric("hilbert_ring_coordinator_memory_used_bytes{account=\"streams\"}")
               .value_or(-1) == 0;
  }

  const std::unique_ptr<Cluster> cluster_ = Cluster::Start({.workers = 2}).value();
  const std::unique_ptr<v1::SmallJobsService::Stub> stub_ =
      v1::SmallJobsService::NewStub(cluster_->Channel());
};

TEST_F(Many, JobsAreEachTheirOwnAndOnesThatAreWrongFailAlone) {
  std::vector<ExpectedJob> jobs = ManyJobs(60);
  std::vector<client::SmallJob> small = Small(jobs);
  small[3].inputs.q = small[3].inputs.q.subspan(4);  // seen here
  small[4].job_id = std::string(1000, 'x');          // by the service
  // Several messages, jobs of which are computed at once.
  const auto reports = client::AttendMany(cluster_->address(), small, {.chunk_bytes = 100'000});
  ASSERT_EQ(reports.size(), jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (i == 3 || i == 4) continue;
    ASSERT_TRUE(reports[i].ok()) << i << ": " << reports[i].status();
    EXPECT_EQ(reports[i]->tokens(), jobs[i].spec.tokens);
    EXPECT_EQ(jobs[i].Wrong(), "") << i;
  }
  EXPECT_THAT(std::string(reports[3].status().message()), HasSubstr("Q: has"));
  EXPECT_EQ(wire::ReasonOf(reports[4].status()), "INVALID_OPEN");
  EXPECT_TRUE(NothingHeld());
}

TEST_F(Many, JobsThatAreAlikeAreComputedTogether) {
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

TEST_F(Many, ALostWorkerCostsNoJob) {
  std::vector<ExpectedJob> jobs = ManyJobs(400);
  std::jthread killer([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(cluster_->Workers().front(), SIGKILL);
  });
  const auto reports =
      client::AttendMany(cluster_->address(), Small(jobs), {.chunk_bytes = 50'000});
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(reports[i].ok()) << i << ": " << reports[i].status();
    if (i % 9 == 0) {
      EXPECT_EQ(jobs[i].Wrong(), "") << i;
    }
  }
}

TEST_F(Many, ACallerThatLeavesLeavesNothing) {
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
  EXPECT_TRUE(Await([this] { return NothingHeld(); }));
  EXPECT_TRUE(Call({v1::AttendManyRequest()}).first.ok());
}

}  // namespace
}  // namespace hilbert_ring::testing
