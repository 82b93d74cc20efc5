#include "tests/faults/on_hosts.h"

namespace hilbert_ring::testing {

void OnHosts::SetUp() {
  if (!network_->ok()) {
    GTEST_SKIP() << "hosts cannot be made here: " << network_->status().message();
  }
}

void OnHosts::TearDown() {
  if (network_->ok()) network().Mend();
}

ClusterOptions OnHosts::EachOnItsHost() {
  ClusterOptions options{.workers = kWorkers, .place = WorkerPlace::kRemote};
  for (int host = kCoordinatorHost; host < kHosts; ++host) {
    options.networks.push_back(HostNetwork::Name(host));
    options.hosts.push_back(HostNetwork::Address(host));
  }
  return options;
}

}  // namespace hilbert_ring::testing
