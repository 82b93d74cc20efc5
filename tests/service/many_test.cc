#include <chrono>
#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/attend_many.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

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
    job.inputs.bias_coordinates = inputs.bias_coords;
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
    if (i % 10 == 9) spec.alibi = Alibi{{0.25, 0, 1, -0.125}, 3};
    jobs.emplace_back(spec, i);
  }
  return jobs;
}

class Many : public ::testing::Test {
 protected:
  const std::unique_ptr<Cluster> cluster_ = Cluster::Start({.workers = 2}).value();
};

TEST(ManyOfALimit, JobsThatExceedItTogetherAreComputedApart) {
  const auto cluster = Cluster::Start({.workers = 1, .arguments = {"--max-tokens=50"}}).value();
  std::vector<ExpectedJob> jobs;
  for (const int64_t tokens : {40, 51, 50, 10, 20}) {
    jobs.emplace_back(PlainSpec({.tokens = tokens, .segment = 32}));
  }
  const auto reports = client::AttendMany(cluster->address(), Small(jobs));
  EXPECT_TRUE(absl::IsOutOfRange(reports[1].status())) << reports[1].status();
  for (const size_t i : {0, 2, 3, 4}) {
    ASSERT_TRUE(reports[i].ok()) << i << ": " << reports[i].status();
    EXPECT_EQ(jobs[i].Wrong(), "") << i;
  }
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

}  // namespace
}  // namespace hilbert_ring::testing
