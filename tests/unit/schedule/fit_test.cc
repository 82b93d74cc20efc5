#include "server/schedule/fit.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

JobSpec Spec(int64_t tokens) {
  return PlainSpec({.tokens = tokens, .heads = 8, .dim = 64, .segment = 1024});
}

TEST(Fit, ReportsHowManyWorkersWouldHoldTheJob) {
  const JobSpec spec = Spec(65536);  // 514 MiB
  const auto plan = MakePlan(spec, 2);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(
      CheckFits(*plan, std::vector<int64_t>{300 * kMiB, 300 * kMiB}, PlannerOf(plan->spec)).ok());
  const std::vector<int64_t> limits = {300 * kMiB, 100 * kMiB};
  const absl::Status status = CheckFits(*plan, limits, PlannerOf(plan->spec));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(wire::ReasonOf(status), "DOES_NOT_FIT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 2 of 2"));
  int enough = 3;
  const auto holds = [&](int workers) {
    const auto tried = MakePlan(spec, workers);
    return CheckFits(*tried, std::vector<int64_t>(workers, 100 * kMiB), PlannerOf(tried->spec))
        .ok();
  };
  while (!holds(enough)) ++enough;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(enough, " workers of")));
}

TEST(Fit, AWorkerHoldsWhatARunTakesBesideItsShard) {
  const auto plan = MakePlan(Spec(4096), 1);
  ASSERT_TRUE(plan.ok());
  const int64_t needed = plan->costs.workers[0].resident_bytes() + kRunOverheadBytes;
  EXPECT_TRUE(CheckFits(*plan, std::vector<int64_t>{needed}, PlannerOf(plan->spec)).ok());
  EXPECT_EQ(
      wire::ReasonOf(CheckFits(*plan, std::vector<int64_t>{needed - 1}, PlannerOf(plan->spec))),
      "DOES_NOT_FIT");
}

TEST(Fit, ReportsThatNoNumberOfWorkersHoldsTheJob) {
  const auto plan = MakePlan(Spec(int64_t{1} << 36), 2);
  ASSERT_TRUE(plan.ok());
  for (const int64_t limit : {kMiB, 64 * kMiB}) {
    const absl::Status status =
        CheckFits(*plan, std::vector<int64_t>(2, limit), PlannerOf(plan->spec));
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("no number of workers"));
  }
}

}  // namespace
}  // namespace hilbert_ring::server
