#include "wire/server_address.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::wire {
namespace {

// The cases that tests/python/test_server_address.py reads, too.
nlohmann::json Cases() {
  std::ifstream file(HILBERT_RING_SERVER_ADDRESSES);
  return nlohmann::json::parse(file);
}

TEST(ServerAddress, HostsWithPortsAndNamesOfGrpcAreTaken) {
  for (const std::string address : Cases()["taken"]) {
    EXPECT_TRUE(CheckServerAddress("--server", address).ok()) << address;
  }
}

TEST(ServerAddress, WhatIsWrongIsNamed) {
  for (const auto& [address, fault] : Cases()["refused"].items()) {
    const absl::Status status = CheckServerAddress("--server", address);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address;
    EXPECT_TRUE(std::string(status.message()).starts_with("--server: \"")) << status;
    EXPECT_NE(status.message().find(fault.get<std::string>()), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace hilbert_ring::wire
