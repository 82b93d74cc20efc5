#include "client/cli/progress_line.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::cli {
namespace {

using client::AttendProgress;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Time kBegin = absl::UnixEpoch();
absl::Time At(double seconds) { return kBegin + absl::Seconds(seconds); }

AttendProgress Admitted(int64_t bytes_sent, double computed = 0, int64_t rows_placed = 0) {
  return {.job_id = "night-17",
          .admitted = true,
          .bytes_sent = bytes_sent,
          .bytes_to_send = 1 << 30,
          .compute_fraction = computed,
          .rows_placed = rows_placed,
          .rows = 1000,
          .tokens = 1000};
}

TEST(ProgressLine, PhasesAreNamedWithTheirRatesAndTimeLeft) {
  ProgressLine line(kBegin);
  line.Note({.job_id = "night-17", .jobs_before = 3, .tokens = 1000}, At(0));
  EXPECT_THAT(line.Bar(At(1)),
              AllOf(HasSubstr("  0 %  queue  3 jobs before this one"), Not(HasSubstr("left"))));
  line.Note(Admitted(0), At(2));
  line.Note(Admitted(256 << 20), At(4));
  EXPECT_THAT(line.Bar(At(4)), HasSubstr("  7 %  send  128.0 MiB/s  6 s left of sending"));
  line.Note(Admitted(1 << 30), At(10));
  line.Note(Admitted(1 << 30, 0.25), At(20));
  EXPECT_THAT(line.Bar(At(20)), HasSubstr("]  45 %  compute  25 tokens/s  30 s left"));
  EXPECT_EQ(line.Sentence(At(20)),
            "job night-17: 45 % after 20.00 s, compute, 25 tokens/s, 30 s left");
  line.Note(Admitted(1 << 30, 1, 0), At(50));
  line.Note(Admitted(1 << 30, 1, 500), At(100));
  EXPECT_THAT(line.Bar(At(100)), HasSubstr("]  95 %  receive  10 tokens/s  50 s left"));
  line.Note(Admitted(1 << 30, 1, 1000), At(150));
  EXPECT_EQ(line.fraction(), 1);
  const auto json = line.Json(At(150));
  EXPECT_EQ(json["job_id"], "night-17");
  EXPECT_EQ(json["phase"], "receive");
  EXPECT_EQ(json["fraction"], 1.0);
  EXPECT_EQ(json["phase_seconds_left"], 0.0);
  EXPECT_FALSE(ProgressLine(kBegin).Json(At(9)).contains("phase_seconds_left"));
}

TEST(ProgressLine, ItNeverRunsBack) {
  ProgressLine line(kBegin);
  std::vector<AttendProgress> steps = {Admitted(1 << 29), Admitted(1 << 30),
                                       Admitted(1 << 30, 0.5, 100)};
  AttendProgress asked_again = Admitted(1 << 30, 0.5, 100);
  asked_again.bytes_to_send = 2 << 30;
  steps.push_back(asked_again);
  AttendProgress lost = {
      .job_id = "night-17", .attempt = 1, .away = true, .rows = 1000, .tokens = 1000};
  steps.push_back(lost);
  lost.away = false;
  steps.push_back(lost);
  AttendProgress again = Admitted(1 << 20);
  again.attempt = 1;
  steps.push_back(again);
  double last = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    line.Note(steps[i], At(static_cast<double>(i)));
    EXPECT_GE(line.fraction(), last) << i;
    last = line.fraction();
  }
  EXPECT_NEAR(last, 0.3 + 0.6 * 0.5 + 0.1 * 0.1, 1e-9);
  EXPECT_THAT(line.Bar(At(10)), AllOf(HasSubstr("]  61 %  send"), HasSubstr("attempt 2")));
  again.bytes_sent = 1 << 29;
  line.Note(again, At(16));
  EXPECT_THAT(line.Bar(At(16)), HasSubstr("10 s left of sending  attempt 2"));
}

TEST(ProgressLine, AServiceThatIsAwayIsSaidToBe) {
  ProgressLine line(kBegin);
  line.Note({.attempt = 1, .away = true}, At(0));
  EXPECT_THAT(line.Bar(At(5)), HasSubstr("away  waits for the service"));
}

}  // namespace
}  // namespace hilbert_ring::cli
