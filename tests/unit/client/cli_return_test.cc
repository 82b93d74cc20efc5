// The command line before a service that is not there yet.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/free_port.h"
#include "tests/unit/client/fake_encoder.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/fake_small_jobs.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

class CliReturn : public ::testing::TestWithParam<double> {
 protected:
  // Runs what `command` says for the name of an output, while `start` makes the service after a
  // while. Beside a client that starts when the service does, so that a busy machine decides
  // nothing. Returns what the earlier one wrote.
  template <typename Start>
  CliResult ExpectReturn(const std::function<std::string(const std::string& name)>& command,
                         Start start, int code = 0) {
    const auto run = [&](const std::string& name) {
      const CliResult result = RunCli(command(name));
      return std::pair(result, absl::Now());
    };
    auto early = std::async(std::launch::async, run, "early");
    absl::SleepFor(absl::Seconds(GetParam()));
    EXPECT_EQ(early.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    [[maybe_unused]] const auto service = start();
    const absl::Time begin = absl::Now();
    const auto [late, late_end] = run("late");
    const auto [result, end] = early.get();
    EXPECT_EQ(late.code, code) << late.err;
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_LT(end, late_end + absl::Seconds(1));
    RecordProperty("seconds", absl::StrCat(absl::ToDoubleSeconds(end - begin)));
    return result;
  }

  std::string Server() const { return absl::StrCat(" --server 127.0.0.1:", port_); }

  std::string Attend(const std::string& name) const {
    return absl::StrCat("attend", Server(), GoldenInputs("dense"), " --out ", files_.Path(name));
  }

  const int port_ = FreePort();
  const TestFiles files_;
};

TEST_P(CliReturn, AServiceThatStartsLaterIsUsedWithinASecond) {
  const CliResult result =
      ExpectReturn([this](const std::string& name) { return Attend(name); },
                   [this] { return std::make_unique<FakeService>(FakeBehaviour(), port_); });
  EXPECT_THAT(result.err, HasSubstr("attempt 2 follows when the service is back"));
}

// The service has no data root, and says so as soon as it is there.
TEST_P(CliReturn, ADataRootIsAskedForWithinASecond) {
  ExpectReturn([this](const std::string& name) { return Attend(name) + " --by-reference always"; },
               [this] { return std::make_unique<FakeService>(FakeBehaviour(), port_); }, 1);
}

TEST_P(CliReturn, AModelIsAskedForWithinASecond) {
  files_.WriteNpy("tiles", wire::NpyType::kFloat32, {8, 4}, std::vector<float>(32, 0.5f));
  std::vector<int32_t> coords(16);
  std::iota(coords.begin(), coords.end(), 0);
  files_.WriteNpy("coords", wire::NpyType::kInt32, {8, 2}, coords);
  ExpectReturn(
      [this](const std::string& name) {
        return absl::StrCat("encode", Server(), " --model small --tiles ", files_.Path("tiles"),
                            " --coords ", files_.Path("coords"), " --out ", files_.Path(name));
      },
      [this] { return std::make_unique<FakeEncoder>(FakeEncoderBehaviour(), port_); });
}

TEST_P(CliReturn, WorkersThatComeLaterRunManyJobsWithinASecond) {
  std::atomic<bool> asked = false, workers = false;
  const FakeSmallJobs service(
      [&](int, int64_t) -> std::vector<absl::Status> {
        asked = true;
        if (workers) return {absl::OkStatus()};
        return {wire::WithReason(absl::UnavailableError("no worker is there"), "NO_WORKERS")};
      },
      port_);
  files_.WriteNpy("q", wire::NpyType::kFloat32, {3, 1, 8}, std::vector<float>(24, 0.5f));
  const CliResult result = ExpectReturn(
      [this](const std::string& name) {
        std::string lines;
        for (const int job : {1, 2}) {
          absl::StrAppend(&lines, R"({"q": ")", files_.Path("q"), R"(", "k": ")", files_.Path("q"),
                          R"(", "v": ")", files_.Path("q"), R"(", "out": ")", files_.Path(name),
                          job, "\"}\n");
        }
        return absl::StrCat("attend-many", Server(), " --segments 8 --dilations 1 ",
                            files_.Write(name + ".jsonl", lines));
      },
      [&] {
        while (!asked) absl::SleepFor(absl::Milliseconds(1));  // on a busy machine it comes late
        return workers = true;
      });
  EXPECT_THAT(result.out, HasSubstr("2 jobs, 0 failed, 6 tokens"));
  EXPECT_THAT(result.err, HasSubstr("reason NO_WORKERS); attempt 2 follows"));
}

INSTANTIATE_TEST_SUITE_P(Seconds, CliReturn, ::testing::Values(0.3, 1, 3));

}  // namespace
}  // namespace hilbert_ring::client
