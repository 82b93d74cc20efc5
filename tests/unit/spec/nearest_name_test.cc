#include "engine/spec/nearest_name.h"

#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

const std::vector<std::string> kNames = {"grpc-port", "http-port", "log-level", "q", "out"};

TEST(NearestName, ASlipHasANearestName) {
  for (const char* slip : {"grpc-prot", "grpc_port", "GRPC-PORT", "grcp-port", "grpcport",
                           "grpc-ports", "rpc-port", "grpc-port"}) {
    EXPECT_EQ(NearestName(slip, kNames), "grpc-port") << slip;
  }
  EXPECT_EQ(NearestName("htp-port", kNames), "http-port");
  const std::vector<std::string> three_letters = {"lag", "log"};
  EXPECT_EQ(NearestName("lgo", three_letters), "log") << "letters that changed places are one slip";
  EXPECT_EQ(NearestNameHint("log-levle", kNames), "; the nearest known one is log-level");
}

TEST(NearestName, WhatIsNearNothingHasNone) {
  for (const char* other : {"memory-share", "x", "", "portgrpchttp"}) {
    EXPECT_EQ(NearestName(other, kNames), "") << other;
    EXPECT_EQ(NearestNameHint(other, kNames), "") << other;
  }
  EXPECT_EQ(NearestName(std::string(1 << 20, 'a'), kNames), "");
  EXPECT_EQ(NearestName("a", {}), "");
}

}  // namespace
}  // namespace hilbert_ring
