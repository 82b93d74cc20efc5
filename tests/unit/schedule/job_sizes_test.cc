#include "server/schedule/job_sizes.h"

#include "engine/model/files/encode_job.h"
#include "gtest/gtest.h"
#include "server/schedule/fit.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::server {
namespace {

JobSpec SizedSpec(int64_t tokens) { return PlainSpec({.tokens = tokens, .heads = 8, .dim = 64}); }

int Best(const std::vector<JobSize>& sizes) {
  return std::min_element(sizes.begin(), sizes.end(),
                          [](const JobSize& a, const JobSize& b) { return a.seconds < b.seconds; })
      ->workers;
}

TEST(JobSizes, DoubleUpToTheMost) {
  const auto sizes = SizesOf(PlannerOf(SizedSpec(4096)), 1, 6, 5e10);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  std::vector<int> workers;
  for (const JobSize& size : *sizes) {
    workers.push_back(size.workers);
    const auto plan = MakePlan(SizedSpec(4096), size.workers);
    for (const WorkerCost& cost : plan->costs.workers) {
      EXPECT_GE(size.bytes, cost.resident_bytes() + kRunOverheadBytes);
    }
  }
  EXPECT_EQ(workers, (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(SizesOf(PlannerOf(SizedSpec(4096)), 3, 3, 5e10)->size(), 1u);
  EXPECT_FALSE(SizesOf(PlannerOf(SizedSpec(0)), 1, 2, 5e10).ok());
}

TEST(JobSizes, SmallJobsEndFirstOnOneWorkerAndLargeOnesOnAll) {
  EXPECT_EQ(Best(*SizesOf(PlannerOf(SizedSpec(64)), 1, 8, 5e10)), 1);
  EXPECT_EQ(Best(*SizesOf(PlannerOf(SizedSpec(100'000)), 1, 8, 5e10)), 8);
  // A job is small for workers that compute a thousand times as fast.
  EXPECT_LT(Best(*SizesOf(PlannerOf(SizedSpec(4096)), 1, 8, 5e13)),
            Best(*SizesOf(PlannerOf(SizedSpec(4096)), 1, 8, 5e10)));
}

// Each worker reads all weights.
TEST(JobSizes, FewTilesEndFirstOnOneWorkerAndManyOnAll) {
  const auto best = [](int64_t tiles) {
    EncodeJob job;
    job.config = {.embed_dim = 768,
                  .heads = 16,
                  .ffn_dim = 3072,
                  .layers = 12,
                  .branches = {{.segment = 1024}},
                  .class_token = true};
    job.slide_tiles = {tiles};
    const auto plan = [&](int workers) -> absl::StatusOr<Plan> {
      return PlanOfJob(job, *MakeEncoderPlan(job.config, job.compute, job.slide_tiles, workers), 1);
    };
    return Best(*SizesOf(plan, 1, 2, 5e10));
  };
  EXPECT_EQ(best(10), 1);
  EXPECT_EQ(best(1000), 2);
}

TEST(JobSizes, TheLongerOfExchangeAndComputeCounts) {
  const auto plan = MakePlan(SizedSpec(4096), 2);
  ASSERT_TRUE(plan.ok());
  ASSERT_GT(plan->costs.bytes_exchanged, 0);
  const double exchange_bound = SizeOf(*plan, 1e17).seconds;
  EXPECT_NEAR(SizeOf(*plan, 1e14).seconds, exchange_bound, 1e-6);  // of 0.17 ms of compute
  EXPECT_GT(SizeOf(*plan, 1e9).seconds, exchange_bound + 1);
}

Members Named(const std::vector<std::string>& addresses) {
  Members members;
  for (const std::string& address : addresses) {
    const auto member = std::make_shared<Member>();
    member->address = address;
    members.push_back(member);
  }
  return members;
}

TEST(ComputeRate, TheSlowestMeasuredWorkerThatIsThereCounts) {
  ComputeRate rate;
  EXPECT_EQ(rate.MeasuredOf(Named({"a", "b"})).workers, 0);
  rate.Observe("a", 1e12, 0.001);  // too short to count
  EXPECT_EQ(rate.MeasuredOf(Named({"a", "b"})).workers, 0);
  rate.Observe("a", 2e11, 1.0);
  rate.Observe("b", 1e11, 1.0);
  rate.Observe("b", 2e11, 1.0);
  rate.Observe("gone", 1e9, 1.0);
  const ComputeRate::Measured measured = rate.MeasuredOf(Named({"a", "b", "c"}));
  EXPECT_EQ(measured.workers, 2);
  EXPECT_NEAR(measured.flops_per_second, 1.3e11, 1e9);
  EXPECT_EQ(rate.MeasuredOf(Named({"a"})).flops_per_second, 2e11);
  rate.Forget("gone");
  EXPECT_EQ(rate.MeasuredOf(Named({"gone"})).workers, 0);
}

TEST(PlanTime, IsUnknownUntilAJobWasMeasured) {
  const auto plan = MakePlan(SizedSpec(100'000), 4);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PlanTime unknown = PredictTime(*plan, {});
  EXPECT_EQ(unknown.seconds, 0);
  EXPECT_NE(unknown.basis.find("no worker has been measured"), std::string::npos);
  const PlanTime known = PredictTime(*plan, {.workers = 4, .flops_per_second = 1e11});
  EXPECT_EQ(known.seconds, SizeOf(*plan, 1e11).seconds);
  EXPECT_NE(known.basis.find("100 Gflop/s, the slowest of 4 workers"), std::string::npos)
      << known.basis;
}

}  // namespace
}  // namespace hilbert_ring::server
