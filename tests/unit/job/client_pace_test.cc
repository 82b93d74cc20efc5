#include "server/job/client_pace.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr PaceLimits kLimits{.idle = seconds(10), .bytes_per_second = 1000};

TEST(ClientPace, AClientMayPauseForTheIdleTimeout) {
  const ClientPace pace(kLimits, "sent");
  const Clock::time_point now(seconds(100));
  EXPECT_EQ(pace.Due(now, 0), now + seconds(10));
  EXPECT_EQ(pace.Due(now, 5000), now + seconds(15));
  const absl::Status late = pace.Late(seconds(10));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_EQ(wire::ReasonOf(late), "CLIENT_IDLE");
  EXPECT_THAT(std::string(late.message()), HasSubstr("not sent anything for 10 s"));
}

TEST(ClientPace, ARowNowAndThenAddsUp) {
  ClientPace pace(kLimits, "read");
  const Clock::time_point now(seconds(100));
  for (int i = 0; i < 4; ++i) pace.Moved(seconds(2), 100);  // 1.9 s behind each
  EXPECT_EQ(pace.Due(now, 0), now + milliseconds(10'000 - 4 * 1900));
  const absl::Status late = pace.Late(milliseconds(2400));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_EQ(wire::ReasonOf(late), "CLIENT_IDLE");
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("read 38 bytes a second over 10.4 s, the least rate is 1000"));
}

TEST(ClientPace, AClientThatKeepsUpIsNeverLate) {
  ClientPace pace(kLimits, "sent");
  const Clock::time_point now(seconds(100));
  for (int i = 0; i < 1000; ++i) pace.Moved(seconds(2), 2000);
  EXPECT_EQ(pace.Due(now, 0), now + seconds(10));
}

TEST(ClientPace, AClientThatCatchesUpMayPauseAgain) {
  ClientPace pace(kLimits, "sent");
  const Clock::time_point now(seconds(100));
  pace.Moved(seconds(9), 0);
  EXPECT_EQ(pace.Due(now, 0), now + seconds(1));
  pace.Moved(seconds(1), 4000);
  EXPECT_EQ(pace.Due(now, 0), now + seconds(4));
  pace.Moved(seconds(0), 1'000'000);
  EXPECT_EQ(pace.Due(now, 0), now + seconds(10));
  pace.Moved(seconds(3), 0);
  EXPECT_EQ(pace.Due(now, 0), now + seconds(7));
}

TEST(ClientPace, WithoutALeastRateAnyProgressWillDo) {
  ClientPace pace({.idle = seconds(10), .bytes_per_second = 0}, "sent");
  const Clock::time_point now(seconds(100));
  for (int i = 0; i < 100; ++i) pace.Moved(seconds(9), 1);
  EXPECT_EQ(pace.Due(now, 1 << 20), now + seconds(10));
  EXPECT_EQ(wire::ReasonOf(pace.Late(seconds(10))), "CLIENT_IDLE");
}

}  // namespace
}  // namespace hilbert_ring::server
