// A coordinator and workers as processes, with the certificates and tokens of a test.
//
//   auto service = SecuredService::Start({.coordinator = {"--tls-cert=" + cert, ...}});
//   RunJob((*service)->address(), job, {.access = {.tls = true, .ca = ca}});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/faults/program.h"

namespace hilbert_ring::testing {

struct SecuredServiceOptions {
  std::vector<std::string> coordinator, worker;  // further arguments
  int spawned = 0;  // workers that the coordinator starts; 0: the test starts two
};

// A folder of its own, removed with it.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class SecuredService {
 public:
  // Once it is ready. Errors hold the logs.
  static absl::StatusOr<std::unique_ptr<SecuredService>> Start(
      const SecuredServiceOptions& options);
  ~SecuredService();

  std::string address() const;  // of callers
  int grpc_port() const { return grpc_port_; }
  int http_port() const { return http_port_; }
  int membership_port() const { return membership_port_; }
  int worker_port(int index) const {
    return worker_ports_.at(index);
  }  // of one that the test started
  std::vector<pid_t> Processes() const;

  // One more worker, not waited for.
  absl::Status AddWorker(const std::vector<std::string>& further);

  // What all have written to their logs.
  std::string Logs() const;

 private:
  SecuredService() = default;
  TestFolder folder_;
  int grpc_port_ = 0, http_port_ = 0, membership_port_ = 0;
  std::vector<int> worker_ports_;
  std::unique_ptr<Program> coordinator_;
  std::vector<std::unique_ptr<Program>> workers_;
};

}  // namespace hilbert_ring::testing
