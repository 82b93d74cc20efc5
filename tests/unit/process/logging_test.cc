#include "server/process/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

void EndByGrpc() {
  StartLogging("test", "info", "text");
  grpc_init();                                                    // says what is logged
  for (int i = 0; i < 3; ++i) gpr_log(GPR_ERROR, "error %d", i);  // the log has one a minute
  GPR_ASSERT(1 + 1 == 3);
}

// It throws, which nothing catches.
void EndByProtobuf() noexcept {
  StartLogging("test", "info", "text");
  for (int i = 0; i < 3; ++i) GOOGLE_LOG(ERROR) << "error " << i;
  GOOGLE_LOG(FATAL) << "the last word";
}

TEST(LoggingDeathTest, ALibraryThatEndsTheProcessSaysWhyWhateverCameBefore) {
  EXPECT_DEATH(EndByGrpc(), "gRPC: error 0.*critical.*gRPC: assertion failed: 1 \\+ 1 == 3");
  EXPECT_DEATH(EndByProtobuf(), "Protobuf: error 0.*critical.*Protobuf: the last word");
}

// A worker's error, or its name.
TEST(Logging, WhatOthersWriteBeginsNoLineAndCommandsNoTerminal) {
  ::testing::internal::CaptureStderr();
  const auto before = spdlog::default_logger();
  StartLogging("test", "info", "text");
  spdlog::warn("it failed: {}", "evil\n2026 info forged line\x1b[31m");
  LogEvent(spdlog::level::info, "worker joined", {{"device", "dev\r\nice"}});
  spdlog::set_default_logger(before);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("it failed: evil\\n2026 info forged line\\x1b[31m\n"));
  EXPECT_THAT(log, EndsWith("worker joined: device=dev\\r\\nice\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

}  // namespace
}  // namespace hilbert_ring::server
