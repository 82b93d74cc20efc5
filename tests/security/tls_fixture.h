#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/access.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_job.h"
#include "tests/support/certificates.h"
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

inline FaultJob SmallJob(uint64_t seed) {
  std::mt19937_64 random(seed);
  return MakeSmallJob(random).value();
}

// Jobs of one attempt each, one after the other, until one fails.
class JobsUnderLoad {
 public:
  JobsUnderLoad(std::string address, uint64_t seed, std::function<client::Access()> access)
      : thread_([this, address = std::move(address), seed,
                 access = std::move(access)](const std::stop_token& stop) {
          const FaultJob job = SmallJob(seed);
          do {
            last_ = RunJob(address, job, {.max_attempts = 1, .access = access()});
            failed_ = last_.verdict != Verdict::kRight;
            ++done_;
          } while (!failed_ && !stop.stop_requested());
        }) {}

  bool GoOn(int more = 2) const {
    const int before = done_;
    for (int i = 0; i < 3000 && done_ < before + more && !failed_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return done_ >= before + more && !failed_;
  }

  JobEnd Stop() {
    thread_.request_stop();
    thread_.join();
    return last_;
  }

 private:
  JobEnd last_;  // the thread's until it has ended
  std::atomic<bool> failed_ = false;
  std::atomic<int> done_ = 0;
  std::jthread thread_;
};

struct Identity {
  std::string cert, key;
};

class TlsFixture : public ::testing::Test {
 protected:
  TlsFixture() {
    authority_.WriteTo(ca_);
    service_ = Issue("service", ForService());
    worker_ = Issue("worker", ForWorker());
    caller_ = Issue("caller", {.common_name = "lab", .alternative_names = ""});
  }

  static CertificateRequest ForService() {
    return {.alternative_names = "DNS:coordinator,DNS:localhost,IP:127.0.0.1"};
  }
  static CertificateRequest ForWorker() { return {.alternative_names = "DNS:worker,IP:127.0.0.1"}; }

  Identity Issue(const std::string& name, const CertificateRequest& request) {
    return IssueBy(authority_, name, request);
  }
  Identity IssueBy(const CertificateAuthority& authority, const std::string& name,
                   const CertificateRequest& request) {
    Identity identity{.cert = folder_ / (name + ".crt"), .key = folder_ / (name + ".key")};
    authority.Issue(request, identity.cert, identity.key);
    return identity;
  }

  std::vector<std::string> Coordinator() const {
    return {"--tls-cert=" + service_.cert, "--tls-key=" + service_.key, "--tls-ca=" + ca_,
            "--tls-peer-name=worker"};
  }
  std::vector<std::string> Worker() const {
    return {"--tls-cert=" + worker_.cert, "--tls-key=" + worker_.key, "--tls-ca=" + ca_,
            "--tls-peer-name=coordinator"};
  }

  TestFolder folder_;
  const std::string ca_ = folder_ / "ca.crt";
  CertificateAuthority authority_;
  Identity service_, worker_, caller_;
};

}  // namespace hilbert_ring::testing
