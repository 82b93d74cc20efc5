#include "server/access/quotas.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

Caller With(const Quota& quota) { return {.name = "lab", .quota = quota}; }

std::string ReasonFor(Quotas& quotas, const Caller& caller, const Quotas::Demand& job) {
  const auto share = quotas.Reserve(caller, job);
  return share.ok() ? "" : wire::ReasonOf(share.status());
}

TEST(Quotas, JobsTokensAndBytesAreCountedTogether) {
  for (const Quota& quota : {Quota{.jobs = 2}, Quota{.tokens = 100}, Quota{.bytes = 1000}}) {
    Quotas quotas;
    const Caller lab = With(quota);
    const Quotas::Demand job = {.tokens = 50, .bytes = 500};
    std::vector<Quotas::Share> shares;
    for (int i = 0; i < 2; ++i) {
      auto share = quotas.Reserve(lab, job);
      ASSERT_TRUE(share.ok()) << share.status();
      shares.push_back(*std::move(share));
    }
    EXPECT_EQ(ReasonFor(quotas, lab, {.tokens = 1, .bytes = 1}), "QUOTA");
    EXPECT_TRUE(absl::IsResourceExhausted(quotas.Reserve(lab, job).status()));
    EXPECT_EQ(ReasonFor(quotas, {.name = "other", .quota = quota}, job), "") << "another caller's";
    shares.pop_back();
    EXPECT_EQ(ReasonFor(quotas, lab, job), "") << "given back";
  }
}

TEST(Quotas, AJobThatCanNeverFitIsOverQuota) {
  Quotas quotas;
  EXPECT_EQ(ReasonFor(quotas, With({.tokens = 100}), {.tokens = 101}), "OVER_QUOTA");
  EXPECT_EQ(ReasonFor(quotas, With({.bytes = 100}), {.bytes = 101}), "OVER_QUOTA");
  EXPECT_EQ(ReasonFor(quotas, With({.tokens = 100, .bytes = 100}), {.tokens = 100, .bytes = 100}),
            "");
  EXPECT_EQ(ReasonFor(quotas, With({.jobs = 1}), {}), "") << "refusals take nothing";
}

}  // namespace
}  // namespace hilbert_ring::server
