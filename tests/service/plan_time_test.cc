// How long a job takes, as the service predicts and measures it.
#include <algorithm>
#include <string>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/sanitizer.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

// A part of a second of compute, spread over the workers.
JobSpec Spec() {
  const int64_t tokens = kThreadSanitizer || kAddressSanitizer ? 2'048 : 8'192;
  return PlainSpec({.tokens = tokens, .heads = 4, .dim = 64});
}

absl::StatusOr<v1::Report> RunJob(const Cluster& cluster, const JobSpec& spec) {
  std::vector<std::byte> rows(spec.tokens * spec.heads * spec.head_dim * sizeof(float));
  std::vector<std::byte> out(rows.size());
  return client::Attend(cluster.address(), {.spec = spec, .q = rows, .k = rows, .v = rows},
                        {.out = out}, {.deadline = absl::Minutes(5)});
}

TEST(PlanTime, IsPredictedFromTheRatesOfJobsBefore) {
  const auto cluster = Cluster::Start({.workers = 2}).value();
  const auto channel = client::Connect(cluster->address());
  auto plan = client::RequestPlan(channel, Spec(), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->seconds(), 0);
  EXPECT_THAT(plan->seconds_basis(), HasSubstr("no worker has been measured"));
  EXPECT_TRUE(nlohmann::json::parse(plan->json())["seconds"].is_null());

  const auto first = RunJob(*cluster, Spec());
  ASSERT_TRUE(first.ok()) << first.status();
  plan = client::RequestPlan(channel, Spec(), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->seconds_basis(), HasSubstr("the slowest of 2 workers"));
  double slowest = 0;
  for (const v1::WorkerReport& worker : first->workers()) {
    slowest = std::max(slowest, worker.compute_seconds());
  }
  // The same job: as long as its slowest worker, and what is not compute.
  EXPECT_GT(plan->seconds(), 0.5 * slowest);
  EXPECT_LT(plan->seconds(), 2 * slowest + 0.5);
  EXPECT_EQ(nlohmann::json::parse(plan->json())["seconds"], plan->seconds());

  // Four times the tokens: sixteen times the work.
  JobSpec longer = Spec();
  longer.tokens *= 4;
  longer.branches = {{longer.tokens, 1}};
  const auto planned = client::RequestPlan(channel, longer, 0);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_GT(planned->seconds(), 8 * plan->seconds());
  EXPECT_LT(planned->seconds(), 20 * plan->seconds());
}

}  // namespace
}  // namespace hilbert_ring::testing
