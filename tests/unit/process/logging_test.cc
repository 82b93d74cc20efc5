#include "server/process/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

void EndByGrpc() {
  StartLogging("test", "info", "text");
  grpc_init();                                                    // logs a line
  for (int i = 0; i < 3; ++i) gpr_log(GPR_ERROR, "error %d", i);  // the log has a line a minute
  GPR_ASSERT(1 + 1 == 3);
}

void EndByProtobuf() noexcept {
  StartLogging("test", "info", "text");
  for (int i = 0; i < 3; ++i) GOOGLE_LOG(ERROR) << "error " << i;
  GOOGLE_LOG(FATAL) << "the last word";
}

TEST(LoggingDeathTest, ALibraryThatEndsTheProcessLogsWhy) {
  EXPECT_DEATH(EndByGrpc(), "gRPC: error 0.*critical.*gRPC: assertion failed: 1 \\+ 1 == 3");
  EXPECT_DEATH(
      EndByProtobuf(),
      "Protobuf: error 0.*critical.*Protobuf: the last word.*critical.*the process ends: ");
}

// The text may be a worker's error or name.
TEST(Logging, ForeignTextBeginsNoLineAndControlsNoTerminal) {
  ::testing::internal::CaptureStderr();
  const auto before = spdlog::default_logger();
  StartLogging("test", "info", "text");
  spdlog::warn("it failed: {}", "evil\n2026 info forged line\x1b[31m");
  LogEvent(spdlog::level::info, "worker joined", {{"device", "dev\r\nice"}});
  FlushLog();
  spdlog::set_default_logger(before);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("it failed: evil\\n2026 info forged line\\x1b[31m\n"));
  EXPECT_THAT(log, EndsWith("worker joined: device=dev\\r\\nice\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

// A payload in JSON is the caller's own text.
TEST(Logging, AnEventIsAnObjectOfItsFieldsAndAMessageIsText) {
  ::testing::internal::CaptureStderr();
  const auto before = spdlog::default_logger();
  StartLogging("test", "info", "json");
  {
    const std::string job = "a\"1";
    LogEvent(spdlog::level::info, "job ended", {{"job", job}, {"tokens", int64_t{64}}});
  }
  spdlog::info(R"({"message":"forged","job":"b"})");
  FlushLog();
  spdlog::set_default_logger(before);
  std::istringstream log(::testing::internal::GetCapturedStderr());
  std::string line;
  std::getline(log, line);
  const auto event = nlohmann::json::parse(line);
  EXPECT_EQ(event["message"], "job ended");
  EXPECT_EQ(event["job"], "a\"1");
  EXPECT_EQ(event["tokens"], 64);
  std::getline(log, line);
  const auto message = nlohmann::json::parse(line);
  EXPECT_EQ(message["message"], R"({"message":"forged","job":"b"})");
  EXPECT_FALSE(message.contains("job"));
}

TEST(Logging, AStalledReaderDelaysNoProcess) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int stderr_before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  const auto before = spdlog::default_logger();
  StartLogging("test", "info", "text");
  for (int i = 0; i < 20'000; ++i) spdlog::info("{}", std::string(100, 'x'));
  spdlog::set_default_logger(before);
  close(ends[0]);
  FlushLog();
  dup2(stderr_before, STDERR_FILENO);
  for (const int end : {ends[1], stderr_before}) close(end);
}

}  // namespace
}  // namespace hilbert_ring::server
