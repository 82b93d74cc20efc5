#include "server/job/failure_policy.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using Worker = std::shared_ptr<const Member>;

// Workers a to e: "a>b" is a's report of b, "a" of an unknown peer.
class FailurePolicyTest : public ::testing::Test {
 protected:
  const Worker& Named(char name) const { return workers_.at(name - 'a'); }

  Failure Of(FailureKind kind, char name, const absl::Status& status) const {
    return {.kind = kind, .status = status, .worker = Named(name)};
  }

  Failure Cut(const std::vector<std::string>& reports, bool slow = false) const {
    Failure failure{.kind = FailureKind::kRing, .status = lost_, .slow = slow};
    for (const std::string& report : reports) {
      failure.reports.push_back(
          {.by = Named(report.front()), .of = report.size() > 1 ? Named(report.back()) : nullptr});
    }
    return failure;
  }

  // "fail", "all", or the excluded worker ("!": it backs off at once)
  std::string After(const Failure& failure, const std::vector<Failure>& earlier = {},
                    bool fits = true) const {
    const Verdict verdict = Decide(failure, earlier, [&](const Worker&) { return fits; });
    if (!verdict.retry) return "fail";
    if (verdict.without == nullptr) return "all";
    return verdict.without->address + (verdict.backs_off_now ? "!" : "");
  }

  const absl::Status lost_ = wire::ErrorOf(wire::reason::kWorkerLost, "");
  const absl::Status broken_ = absl::InternalError("the device failed");

 private:
  static Worker Make(const char* name) {
    auto worker = std::make_shared<Member>();
    worker->address = name;
    return worker;
  }
  const std::array<Worker, 5> workers_ = {Make("a"), Make("b"), Make("c"), Make("d"), Make("e")};
};

TEST_F(FailurePolicyTest, AWorkersOwnFailureExcludesItAtOnce) {
  for (const FailureKind kind : {FailureKind::kWorker, FailureKind::kStall}) {
    EXPECT_EQ(After(Of(kind, 'a', lost_)), "a!");
    EXPECT_EQ(After(Of(kind, 'a', broken_)), "a!");
    EXPECT_EQ(After(Of(kind, 'a', broken_), {}, false), "fail")
        << "no other worker can take the job";
    EXPECT_EQ(After(Of(kind, 'a', lost_), {}, false), "a!") << "it may come back";
  }
}

TEST_F(FailurePolicyTest, TheStatusDecidesWhereNoWorkerIsToBlame) {
  EXPECT_EQ(After({.status = lost_}), "all");
  EXPECT_EQ(After({.status = wire::ErrorOf(wire::reason::kJobTimeout, "")}), "fail");
}

TEST_F(FailurePolicyTest, AnErrorThatAnotherWorkerHasTooIsTheJobs) {
  const Failure first = Of(FailureKind::kEither, 'a', broken_);
  EXPECT_EQ(After(first), "a");
  EXPECT_EQ(After(first, {}, false), "fail");
  EXPECT_EQ(After(Of(FailureKind::kEither, 'b', broken_), {first}), "fail");
  EXPECT_EQ(After(Of(FailureKind::kEither, 'a', broken_), {first}), "a") << "it came back";
  EXPECT_EQ(After(Of(FailureKind::kEither, 'b', absl::UnknownError("")), {first}), "b");
  EXPECT_EQ(After(Of(FailureKind::kEither, 'b', broken_), {Of(FailureKind::kWorker, 'a', broken_)}),
            "b");
}

TEST_F(FailurePolicyTest, AJobIsTriedOnceMoreWithWorkersThatReportEachOther) {
  EXPECT_EQ(After(Cut({"a>b", "b>a"})), "all") << "it may be a moment's";
  EXPECT_EQ(After(Cut({"a>b"}), {Cut({"a>b"})}), "b");
  EXPECT_EQ(After(Cut({"a>b"}), {Cut({"a>b"}), {.status = lost_}}), "b");
  EXPECT_EQ(After(Cut({"a>b"}, true)), "b") << "each try is slow";
  EXPECT_EQ(After(Cut({"a"}, true)), "a");
}

TEST_F(FailurePolicyTest, TheWorkerThatIsReportedMostIsExcluded) {
  EXPECT_EQ(After(Cut({"b>a", "c>b"}), {Cut({"a>b", "c>b"})}), "b");
  EXPECT_EQ(After(Cut({"a>c"}), {Cut({"a>b"})}), "a") << "it loses one peer after the other";
  EXPECT_EQ(After(Cut({"a"}), {Cut({"a"})}), "a");
}

TEST_F(FailurePolicyTest, ReportsWithoutAPatternExcludeNoWorker) {
  EXPECT_EQ(After(Cut({"b"}), {Cut({"a"})}), "all");
  EXPECT_EQ(After(Cut({"a>b"}), {Cut({"c>d"})}), "all");
  EXPECT_EQ(After(Cut({}), {Cut({"a>b"})}), "all") << "the reporters have left";
}

TEST(FailureOf, AWorkersReasonIsOneOfOursOrNone) {
  v1::RunFailed failed;
  failed.set_code(static_cast<int>(absl::StatusCode::kInternal));
  failed.set_message("broken");
  failed.set_reason("MADE_UP_4711");
  absl::Status failure = FailureOf("worker:1", StatusOf(failed));
  EXPECT_EQ(failure.message(), "worker worker:1: broken");
  EXPECT_EQ(wire::ReasonOf(failure), "INTERNAL");
  failed.set_reason(std::string(wire::reason::kWorkerBusy.name));
  failure = FailureOf("worker:1", StatusOf(failed));
  EXPECT_EQ(wire::ReasonOf(failure), wire::reason::kWorkerBusy.name);
}

TEST(MayRetry, SeparatesWorkersFailuresFromJobs) {
  for (const wire::Reason* reason : {&wire::reason::kWorkerLost, &wire::reason::kWorkerDataLoss}) {
    EXPECT_TRUE(MayRetry(wire::ErrorOf(*reason, "")));
  }
  for (const wire::Reason* reason :
       {&wire::reason::kJobTimeout, &wire::reason::kClientIdle, &wire::reason::kRowsLost,
        &wire::reason::kRowMismatch, &wire::reason::kClientCancelled}) {
    EXPECT_FALSE(MayRetry(wire::ErrorOf(*reason, ""))) << reason->name;
  }
  EXPECT_FALSE(MayRetry(absl::OkStatus()));
  EXPECT_FALSE(MayRetry(absl::InternalError("")));
}

}  // namespace
}  // namespace hilbert_ring::server
