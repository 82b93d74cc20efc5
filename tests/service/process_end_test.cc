// The start and end of the programs: standard streams keep their numbers, and no exit handler runs
// while libraries' threads live.
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/await.h"
#include "tests/support/free_port.h"
#include "tests/support/http_get.h"
#include "tests/support/process_account.h"
#include "tests/support/program.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSaid[] = "exit handlers run";
constexpr std::chrono::seconds kLimit{60};

class ProcessEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kAddressSanitizer || kThreadSanitizer) {
      GTEST_SKIP() << "a sanitizer prints its findings in an exit handler";
    }
  }

  std::unique_ptr<Program> Start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/env", absl::StrCat("LD_PRELOAD=", HILBERT_RING_EXIT_HANDLERS)});
    auto program = Program::Start({.arguments = std::move(arguments), .log = log_});
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *std::move(program) : nullptr;
  }

  std::unique_ptr<Program> StartService(const char* streams) const {
    const int port = FreePort();
    auto coordinator = Start(
        {"/bin/sh", "-c",
         absl::StrCat("exec ", HILBERT_RING_COORDINATOR_BINARY, " --grpc-port=0 --spawn-workers=1 ",
                      "--membership-port=0 --http-port=", port, " ", streams)});
    EXPECT_TRUE(Await([&] {
      return HttpGet({.port = port, .path = "/readyz"}).value_or(HttpAnswer{}).status == 200;
    }));
    return coordinator;
  }

  static std::string End(Program& program) { return program.AwaitEnd(kLimit).value_or("it runs"); }

  std::string Said() const { return FileText(log_); }

  const TestFolder folder_;
  const std::string log_ = folder_ / "log";
};

TEST_F(ProcessEnd, TheServiceEndsWithoutExitHandlers) {
  const auto coordinator = StartService("");
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(End(*coordinator), "exit status 0");
  EXPECT_THAT(Said(), HasSubstr("coordinator["));
  EXPECT_THAT(Said(), HasSubstr("worker["));
  EXPECT_THAT(Said(), Not(HasSubstr(kSaid)));
}

// A reused number would let the log reach a caller's file.
TEST_F(ProcessEnd, TheServiceRunsWithItsStandardStreamsClosed) {
  const auto coordinator = StartService("<&- >&- 2>&-");
  std::vector<pid_t> processes = ChildrenOf(coordinator->pid());
  EXPECT_EQ(processes.size(), 1u);
  processes.push_back(coordinator->pid());
  for (const pid_t pid : processes) {
    for (const int stream : {0, 1, 2}) {
      EXPECT_EQ(std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/fd/", stream)),
                "/dev/null");
    }
  }
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(End(*coordinator), "exit status 0");
}

TEST_F(ProcessEnd, TheCommandLineEndsWithoutExitHandlersAndItsOutputIsWritten) {
  EXPECT_EQ(End(*Start({HILBERT_RING_CLIENT_BINARY, "version"})), "exit status 0");
  EXPECT_EQ(End(*Start({HILBERT_RING_CLIENT_BINARY, "--server=127.0.0.1:1", "status"})),
            "exit status 1");
  EXPECT_THAT(Said(), HasSubstr("hilbert-ring "));
  EXPECT_THAT(Said(), HasSubstr("UNAVAILABLE"));
  EXPECT_THAT(Said(), Not(HasSubstr(kSaid)));
}

}  // namespace
}  // namespace hilbert_ring::testing
