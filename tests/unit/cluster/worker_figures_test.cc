#include "server/cluster/worker_figures.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(WorkerFigures, GoodReportsStayAsTheyAre) {
  v1::WorkerReport report;
  report.set_device("a processor");
  report.set_tokens(1 << 20);
  report.set_flops(1e18);
  report.set_compute_seconds(3600);
  report.set_bytes_received(int64_t{1} << 45);
  report.add_spans()->set_end_seconds(0.5);
  const std::string before = report.SerializeAsString();
  EXPECT_THAT(DropAbsurd(report, 1), IsEmpty());
  EXPECT_EQ(report.SerializeAsString(), before);
}

TEST(WorkerFigures, AbsurdOnesOfReportsAreDropped) {
  v1::WorkerReport report;
  report.set_device(std::string(5000, '\xc3'));
  report.set_tokens(-1);
  report.set_memory_peak_bytes(std::numeric_limits<int64_t>::max());
  report.set_flops(kNan);
  report.set_flops_predicted(7);
  report.set_compute_seconds(-kInfinity);
  report.set_exchange_seconds(kInfinity);
  report.set_bytes_received(-5);
  report.set_library_flops(-1);
  report.set_library_refusal(std::string(5000, '!'));
  report.set_file_bytes_read(-1);
  report.set_file_bytes_written(std::numeric_limits<int64_t>::max());
  report.set_rows_not_finite(-1);
  report.set_first_row_not_finite(-1);
  EXPECT_THAT(DropAbsurd(report, 0),
              ElementsAre("device", "tokens", "memory_peak_bytes", "flops", "library_flops",
                          "library_refusal", "compute_seconds", "exchange_seconds",
                          "bytes_received", "file_bytes_read", "file_bytes_written",
                          "rows_not_finite", "first_row_not_finite"));
  EXPECT_EQ(report.library_flops(), 0);
  EXPECT_EQ(report.library_refusal(), std::string(128, '!'));
  EXPECT_EQ(report.file_bytes_read(), 0);
  EXPECT_EQ(report.file_bytes_written(), 0);
  EXPECT_EQ(report.rows_not_finite(), 0);
  EXPECT_EQ(report.first_row_not_finite(), 0);
  EXPECT_EQ(report.device(), std::string(128, '?'));
  EXPECT_EQ(report.tokens(), 0);
  EXPECT_EQ(report.memory_peak_bytes(), 0);
  EXPECT_EQ(report.flops(), 0);
  EXPECT_EQ(report.flops_predicted(), 7);
  EXPECT_EQ(report.compute_seconds(), 0);
  EXPECT_EQ(report.exchange_seconds(), 0);
  EXPECT_EQ(report.bytes_received(), 0);
}

TEST(WorkerFigures, OfMoreSpansThanWereAskedForNoneIsKept) {
  v1::WorkerReport report;
  for (int i = 0; i < 8; ++i) report.add_spans()->set_end_seconds(1);
  EXPECT_THAT(DropAbsurd(report, 8), IsEmpty());
  EXPECT_EQ(report.spans_size(), 8);
  EXPECT_THAT(DropAbsurd(report, 7), ElementsAre("spans"));
  EXPECT_EQ(report.spans_size(), 0);
}

TEST(WorkerFigures, AbsurdOnesOfHeartbeatsAreDropped) {
  v1::Heartbeat beat;
  beat.set_memory_limit_bytes(int64_t{1} << 60);
  beat.set_memory_used_bytes(-1);
  beat.set_memory_resident_bytes(5);
  for (const double seconds : {0.5, kNan, -1.0, 1e300, 0.25}) beat.add_cancel_seconds(seconds);
  EXPECT_THAT(DropAbsurd(beat),
              ElementsAre("memory_limit_bytes", "memory_used_bytes", "cancel_seconds"));
  EXPECT_EQ(beat.memory_limit_bytes(), 0);
  EXPECT_EQ(beat.memory_used_bytes(), 0);
  EXPECT_EQ(beat.memory_resident_bytes(), 5);
  EXPECT_THAT(beat.cancel_seconds(), ElementsAre(0.5, 0.25));
  v1::Heartbeat sizes;
  sizes.set_threads(std::numeric_limits<int32_t>::max());
  sizes.set_express_lanes(std::numeric_limits<int32_t>::max());
  sizes.set_http_port(99999);
  EXPECT_THAT(DropAbsurd(sizes), ElementsAre("http_port", "threads", "express_lanes"));
  EXPECT_EQ(sizes.threads(), 0);
  EXPECT_EQ(sizes.express_lanes(), 0);
  EXPECT_EQ(sizes.http_port(), 0);
  sizes.set_threads(4096);
  sizes.set_express_lanes(4096);
  sizes.set_http_port(65535);
  EXPECT_THAT(DropAbsurd(sizes), IsEmpty());
  v1::Heartbeat many;
  for (int i = 0; i < 5000; ++i) many.add_cancel_seconds(1);
  EXPECT_THAT(DropAbsurd(many), ElementsAre("cancel_seconds"));
  EXPECT_EQ(many.cancel_seconds_size(), 1024);
}

// They reach the log and terminals.
TEST(WorkerFigures, NamesHaveNoControlCharacters) {
  v1::Heartbeat beat;
  beat.set_device("dev\nice\x1b[31m");
  beat.set_kernel(std::string(127, 'k') + "\r\n");
  beat.set_transport("gloo");
  EXPECT_THAT(DropAbsurd(beat), ElementsAre("device", "kernel"));
  EXPECT_EQ(beat.device(), "dev?ice?[31m");
  EXPECT_EQ(beat.kernel(), std::string(127, 'k') + "?");
  EXPECT_EQ(beat.transport(), "gloo");
  v1::WorkerReport report;
  report.set_device("\x1b]0;title\x07");
  EXPECT_THAT(DropAbsurd(report, 0), ElementsAre("device"));
  EXPECT_EQ(report.device(), "?]0;title?");
}

TEST(WorkerFigures, ProgressIsAFraction) {
  v1::RunProgress progress;
  for (const double fraction : {0.0, 0.5, 1.0}) {
    progress.set_fraction(fraction);
    EXPECT_FALSE(IsAbsurd(progress)) << fraction;
  }
  for (const double fraction : {-0.1, 1.1, kNan, kInfinity}) {
    progress.set_fraction(fraction);
    EXPECT_TRUE(IsAbsurd(progress)) << fraction;
  }
  progress.set_fraction(0.5);
  progress.set_waiting_step(-1);
  EXPECT_TRUE(IsAbsurd(progress));
}

}  // namespace
}  // namespace hilbert_ring::server
