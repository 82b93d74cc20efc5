#include "wire/server_address.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::wire {
namespace {

// tests/python/test_server_address.py reads the same cases.
nlohmann::json Cases() {
  std::ifstream file(HILBERT_RING_SERVER_ADDRESSES);
  return nlohmann::json::parse(file);
}

TEST(ServerAddress, HostsWithPortsAndNamesOfGrpcAreTaken) {
  const nlohmann::json cases = Cases();
  ASSERT_GT(cases["taken"].size(), 10u);
  for (const auto& given : cases["taken"]) {
    const auto address = given.get<std::string>();
    EXPECT_TRUE(CheckServerAddress("--server", address).ok()) << address;
  }
}

TEST(ServerAddress, WhatIsWrongIsNamed) {
  const nlohmann::json cases = Cases();
  ASSERT_GT(cases["refused"].size(), 50u);
  for (const auto& [address, fault] : cases["refused"].items()) {
    const absl::Status status = CheckServerAddress("--server", address);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address;
    EXPECT_TRUE(std::string(status.message()).starts_with("--server: \"")) << status;
    EXPECT_NE(status.message().find(fault.get<std::string>()), std::string::npos) << status;
  }
}

TEST(ServerAddress, ANameIsNoLongerThanAHosts) {
  EXPECT_TRUE(CheckServerName("--server-name", "").ok());
  EXPECT_TRUE(CheckServerName("--server-name", std::string(253, 'x')).ok());
  EXPECT_EQ(CheckServerName("--server-name", std::string(254, 'x')).message(),
            "--server-name is a name of 254 characters, must be of 253 at most");
}

}  // namespace
}  // namespace hilbert_ring::wire
