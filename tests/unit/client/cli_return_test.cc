// The command line before a service that is not there yet.
#include <future>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/free_port.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using testing::HasSubstr;

class CliReturn : public testing::TestWithParam<double> {};

// Beside a client that starts when the service does, so that a busy machine decides nothing.
TEST_P(CliReturn, AServiceThatStartsLaterIsUsedWithinASecond) {
  const int port = FreePort();
  const TestFiles files;
  const auto attend = [&](const std::string& out) {
    const CliResult result = RunCli(absl::StrCat(
        "attend --server 127.0.0.1:", port, GoldenInputs("dense"), " --out ", files.Path(out)));
    return std::pair(result, absl::Now());
  };
  auto early = std::async(std::launch::async, attend, "early.npy");
  absl::SleepFor(absl::Seconds(GetParam()));
  const FakeService service({}, port);
  const absl::Time start = absl::Now();
  const auto [late, late_end] = attend("late.npy");
  const auto [result, end] = early.get();
  EXPECT_EQ(late.code, 0) << late.err;
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("attempt 2 follows when the service is back"));
  EXPECT_LT(end, late_end + absl::Seconds(1));
  RecordProperty("seconds", absl::StrCat(absl::ToDoubleSeconds(end - start)));
}

INSTANTIATE_TEST_SUITE_P(Seconds, CliReturn, testing::Values(0.3, 1, 3));

}  // namespace
}  // namespace hilbert_ring::client
