// A coordinator, workers and a client on their own hosts (host_network.h). Tests are skipped
// without such hosts.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/host_network.h"

namespace hilbert_ring::testing {

class OnHosts : public ::testing::Test {
 public:
  static constexpr int kWorkers = 3;
  static constexpr int kCoordinatorHost = 1;
  static constexpr int kHosts = 2 + kWorkers;

 protected:
  // Once in a process, before other threads: one test suite a program.
  static void SetUpTestSuite() { network_ = new auto(HostNetwork::Make(kHosts, 1)); }
  static void TearDownTestSuite() { delete network_; }

  void SetUp() override;
  void TearDown() override;

  static HostNetwork& network() { return ***network_; }

  static ClusterOptions EachOnItsHost();

 private:
  static inline absl::StatusOr<std::unique_ptr<HostNetwork>>* network_ = nullptr;
};

}  // namespace hilbert_ring::testing
