#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/free_port.h"
#include "tests/support/test_depth.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

class CliReturn : public ::testing::TestWithParam<double> {};

// A second client starts with the service, so that a slow machine delays both.
TEST_P(CliReturn, AServiceThatStartsLaterIsUsedWithinASecond) {
  const int port = FreePort();
  const TestFiles files;
  const auto run = [&](const std::string& name) {
    const CliResult result = RunCli(absl::StrCat(
        "attend --server 127.0.0.1:", port, GoldenInputs("dense"), " --out ", files.Path(name)));
    return std::pair(result, absl::Now());
  };
  auto early = std::async(std::launch::async, run, "early");
  absl::SleepFor(absl::Seconds(GetParam()));
  EXPECT_EQ(early.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  const FakeService service({}, port);
  const auto [late, late_end] = run("late");
  const auto [result, end] = early.get();
  EXPECT_EQ(late.code, 0) << late.err;
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_LT(end, late_end + absl::Seconds(1));
  EXPECT_THAT(result.err, ::testing::HasSubstr("attempt 2 follows when the service is back"));
}

INSTANTIATE_TEST_SUITE_P(Seconds, CliReturn,
                         ::testing::ValuesIn(AtDepth<std::vector<double>>({0.3}, {0.3},
                                                                          {0.3, 1, 3})));

}  // namespace
}  // namespace hilbert_ring::client
