// Calls of many small jobs to a service of their own, each job with what it should give.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/attend_many.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/many.grpc.pb.h"
#include "tests/engine/expected_rows.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {

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

inline std::vector<client::SmallJob> Small(std::vector<ExpectedJob>& jobs) {
  std::vector<client::SmallJob> small;
  small.reserve(jobs.size());
  for (ExpectedJob& job : jobs) small.push_back(job.small());
  return small;
}

// Kinds by turns, of lengths of their own.
inline std::vector<ExpectedJob> ManyJobs(int count) {
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
                ::testing::HasSubstr(
                    "hilbert_ring_coordinator_memory_used_bytes{account=\"streams\"} 0\n"));
  }

  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<v1::SmallJobsService::Stub> stub_;
};

}  // namespace hilbert_ring::testing
