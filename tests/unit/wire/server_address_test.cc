#include "wire/server_address.h"

#include <utility>

#include "gtest/gtest.h"

namespace hilbert_ring::wire {
namespace {

TEST(ServerAddress, HostsWithPortsAndNamesOfGrpcAreTaken) {
  for (const char* address :
       {"localhost:8001", "10.0.0.1:1", "coordinator.example:65535", "[::1]:8001",
        "dns:///coordinator:8001", "ipv4:10.0.0.1:80,10.0.0.2:80", "unix:/run/hilbert",
        "unix-abstract:ring"}) {
    EXPECT_TRUE(CheckServerAddress("--server", address).ok()) << address;
  }
}

TEST(ServerAddress, WhatIsWrongIsNamed) {
  for (const auto& [address, fault] : {std::pair{"http://localhost:8001", "leave out http://"},
                                       {"https://localhost", "leave out https://"},
                                       {"grpc://h:1", "leave out grpc://"},
                                       {"localhost", "has no port"},
                                       {"[::1]", "has no port"},
                                       {"::1", "in brackets"},
                                       {"fe80::1:8001", "in brackets"},
                                       {"[::1:8001", "closing bracket"},
                                       {"localhost:8001/", "has a path"},
                                       {"localhost:", "has port \"\""},
                                       {"localhost:http", "has port \"http\""},
                                       {"localhost:0", "expected 1 to 65535"},
                                       {"localhost:65536", "expected 1 to 65535"},
                                       {":8001", "has no host"},
                                       {"local host:8001", "has a space"},
                                       {"", "is empty"}}) {
    const absl::Status status = CheckServerAddress("--server", address);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address;
    EXPECT_TRUE(std::string(status.message()).starts_with("--server: "));
    EXPECT_NE(status.message().find(fault), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace hilbert_ring::wire
