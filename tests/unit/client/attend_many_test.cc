// AttendMany: packing of jobs, and the end of each job if calls fail.
#include "client/cpp/attend_many.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/manual_timing.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

FakeBehaviour Refusing(const absl::Status& status, const std::string& reason) {
  return {.refuse = wire::ToGrpc(wire::WithReason(status, reason))};
}

FakeBehaviour NoWorkers() {
  return Refusing(absl::UnavailableError("no worker is there"), "NO_WORKERS");
}

// Four jobs of 10, 11, 12 and 13 tokens.
class AttendManyTest : public ::testing::Test {
 protected:
  AttendManyTest() {
    for (EchoJob& job : jobs_) {
      job.spec_.branches = {{16, 1}};
      small_.push_back({.inputs = job.inputs(), .outputs = {.out = job.out_}});
    }
  }

  std::vector<absl::StatusOr<v1::Report>> Run(FakeBehaviour behaviour,
                                              const JobOptions& options = {}) {
    const FakeService service(std::move(behaviour));
    auto reports = AttendMany(service.address(), small_, options);
    for (const FakeRecord& call : service.records()) {
      calls_.push_back(call.open.spec().tokens());
      names_.push_back(call.open.job_id());
      last_ = call.open.spec();
    }
    return reports;
  }

  void ExpectEchoed(const std::vector<absl::StatusOr<v1::Report>>& reports,
                    const std::vector<size_t>& numbers) const {
    for (const size_t i : numbers) {
      ASSERT_TRUE(reports[i].ok()) << i << ": " << reports[i].status();
      EXPECT_EQ(reports[i]->tokens(), jobs_[i].spec_.tokens);
      EXPECT_TRUE(jobs_[i].echoed()) << i;
    }
  }

  std::vector<EchoJob> jobs_ = {EchoJob(10), EchoJob(11), EchoJob(12), EchoJob(13)};
  std::vector<SmallJob> small_;
  ManualTiming timing_;
  std::vector<int64_t> calls_;  // their tokens
  std::vector<std::string> names_;
  v1::JobSpec last_;
};

TEST_F(AttendManyTest, JobsThatAreAlikeButForTheirTokensShareACall) {
  small_[1].inputs.spec.sequence_lengths = {4, 7};
  JobProgress progress;
  ExpectEchoed(Run({}, {.progress = [&](const JobProgress& news) { progress = news; }}),
               {0, 1, 2, 3});
  EXPECT_THAT(calls_, ElementsAre(46));
  EXPECT_THAT(last_.sequence_lengths(), ElementsAre(10, 4, 7, 12, 13));
  EXPECT_EQ(progress.rows_placed, 46);
  EXPECT_EQ(progress.rows, 46);
  EXPECT_EQ(progress.bytes_sent, progress.bytes_to_send);
}

TEST_F(AttendManyTest, JobsWithOtherKeysShareACall) {
  const int64_t row_bytes = 2 * 16 * 4;
  for (const auto& [job, keys] : {std::pair(1, 0), {3, 5}}) {
    AttendInputs& inputs = small_[job].inputs;
    inputs.spec.key_tokens = keys;
    inputs.k = inputs.k.first(keys * row_bytes);
    inputs.v = inputs.v.first(keys * row_bytes);
  }
  small_[2].inputs.spec.align = Align::kStart;
  ExpectEchoed(Run({}), {0, 1, 2, 3});
  EXPECT_THAT(calls_, UnorderedElementsAre(34, 12));
  small_[2].inputs.spec.align = Align::kEnd;
  ExpectEchoed(Run({}), {0, 1, 2, 3});
  EXPECT_THAT(last_.sequence_lengths(), ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(last_.key_sequence_lengths(), ElementsAre(10, 0, 12, 5));
  EXPECT_EQ(last_.key_tokens(), 27);
}

TEST_F(AttendManyTest, OthersHaveTheirOwn) {
  small_[0].inputs.spec.causal = true;
  small_[1].outputs.lse = jobs_[1].lse_;
  small_[2].job_id = "mine";
  small_[3].inputs.spec.ordering.emplace().coordinate_axes = 2;
  small_[3].inputs.coordinates = [](int64_t, std::span<uint32_t> values) {
    std::ranges::fill(values, 0);
  };
  ExpectEchoed(Run({}), {0, 1, 2, 3});
  EXPECT_THAT(calls_, UnorderedElementsAre(10, 11, 12, 13));
  EXPECT_THAT(names_, ::testing::Contains("mine"));
}

TEST_F(AttendManyTest, ACallIsBounded) {
  const int64_t row_bytes = 2 * 16 * 4;
  ExpectEchoed(Run({}, {.chunk_bytes = 3 * row_bytes * (11 + 12)}), {0, 1, 2, 3});
  EXPECT_THAT(calls_, UnorderedElementsAre(21, 12, 13));
}

TEST_F(AttendManyTest, AJobThatIsWrongIsNotSent) {
  small_[1].inputs.q = small_[1].inputs.q.subspan(4);
  const auto reports = Run({});
  ExpectEchoed(reports, {0, 2, 3});
  EXPECT_THAT(std::string(reports[1].status().message()), HasSubstr("Q: has"));
  EXPECT_THAT(calls_, ElementsAre(35));
}

TEST_F(AttendManyTest, AJobThatFailsOthersFailsAlone) {
  const FakeBehaviour refuses = Refusing(absl::InvalidArgumentError("wrong"), "INVALID_SPEC");
  const auto reports = Run({.earlier_calls = {refuses, {}, refuses, {}, refuses}});
  ExpectEchoed(reports, {0, 1, 2});
  EXPECT_EQ(reports[3].status().message(), "wrong");
  EXPECT_THAT(calls_, ElementsAre(46, 21, 25, 12, 13));
}

TEST_F(AttendManyTest, ACallForWhichThereIsNoWorkerIsMadeAgain) {
  ExpectEchoed(Run({.earlier_calls = {NoWorkers()}}, {.timing = timing_.timing()}), {0, 1, 2, 3});
  EXPECT_THAT(calls_, ElementsAre(46, 46));
}

TEST_F(AttendManyTest, AnOutageIsBoundedByItsTime) {
  const auto reports =
      Run(NoWorkers(), {.outage_timeout = absl::Seconds(20), .timing = timing_.timing()});
  for (const auto& report : reports) {
    EXPECT_EQ(wire::ReasonOf(report.status()), "NO_WORKERS");
    EXPECT_THAT(std::string(report.status().message()), HasSubstr("away for its limit of 20s"));
  }
  EXPECT_LE(timing_.total(), absl::Seconds(20));
}

TEST_F(AttendManyTest, AServiceThatIsAwayFailsAllJobs) {
  for (int i = 0; i < 20; ++i) small_.push_back(small_[0]);
  const auto reports = Run(NoWorkers(), {.max_attempts = 1, .chunk_bytes = 1});
  EXPECT_LE(calls_.size(), 4u);
  for (const auto& report : reports) EXPECT_EQ(report.status().message(), "no worker is there");
}

TEST_F(AttendManyTest, ACallWithoutRoomWaitsForOthers) {
  FakeBehaviour full = Refusing(absl::ResourceExhaustedError("one job has room"), "QUOTA");
  full.retry_after = "1";
  const std::vector<FakeBehaviour> first(4, full);
  ExpectEchoed(Run({.earlier_calls = first}, {.chunk_bytes = 1 << 10}), {0, 1, 2, 3});
  EXPECT_EQ(calls_.size(), 8u);
}

TEST_F(AttendManyTest, RowsThatAreNotFiniteAreThoseOfTheirJob) {
  for (EchoJob& job : jobs_) std::ranges::fill(job.q_, std::byte{0});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const size_t row_bytes = jobs_[1].q_.size() / 11;
  std::memcpy(jobs_[1].q_.data() + 3 * row_bytes, &nan, sizeof(nan));
  std::memcpy(jobs_[1].q_.data() + 7 * row_bytes, &nan, sizeof(nan));
  const auto reports = Run({});
  ExpectEchoed(reports, {0, 1, 2, 3});
  EXPECT_EQ(reports[0]->rows_not_finite(), 0);
  EXPECT_EQ(reports[1]->rows_not_finite(), 2);
  EXPECT_EQ(reports[1]->first_row_not_finite(), 3);
  EXPECT_EQ(reports[2]->rows_not_finite(), 0);
}

}  // namespace
}  // namespace hilbert_ring::client
