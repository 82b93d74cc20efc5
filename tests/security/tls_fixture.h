// Certificates of a service, its workers and a caller, and the arguments that name them.
#pragma once

#include <string>
#include <vector>

#include "client/cpp/access.h"
#include "gtest/gtest.h"
#include "tests/security/start_secured.h"
#include "tests/support/certificates.h"

namespace hilbert_ring::testing {

// Paths of files.
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

  // TLS on all ports, mutual between the processes.
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
