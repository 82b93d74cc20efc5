// A cluster with the certificates and tokens of a test.
//
//   auto service = StartSecured({.arguments = {"--tls-cert=" + cert, ...}});
//   RunJob((*service)->address(), job, {.access = {.tls = true, .ca = ca}});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

struct SecuredOptions {
  std::vector<std::string> arguments, worker_arguments;  // of the coordinator, of the workers
  int workers = 2;
  WorkerPlace place = WorkerPlace::kBeside;
};

inline absl::StatusOr<std::unique_ptr<Cluster>> StartSecured(const SecuredOptions& options) {
  return Cluster::Start({.workers = options.workers,
                         .place = options.place,
                         .arguments = options.arguments,
                         .worker_arguments = options.worker_arguments,
                         .spread = false,
                         .log_files = true});
}

}  // namespace hilbert_ring::testing
