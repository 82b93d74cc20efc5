#include "server/process/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

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

}  // namespace
}  // namespace hilbert_ring::server
