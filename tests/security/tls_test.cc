#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_job.h"
#include "tests/security/tls_fixture.h"
#include "tests/support/await.h"
#include "tests/support/http_get.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class Tls : public TlsFixture {
 protected:
  std::vector<std::string> Coordinator() const {
    std::vector<std::string> arguments = TlsFixture::Coordinator();
    arguments.push_back("--tls-client-ca=" + ca_);
    return arguments;
  }
  client::Access Caller() const {
    return {.tls = true, .ca = ca_, .cert = caller_.cert, .key = caller_.key};
  }
  const CertificateAuthority unauthenticated_;
};

absl::Status Ask(const std::string& address, const client::Access& access) {
  return client::RequestCluster(client::Connect(address, access)).status();
}

int AwaitWorkers(const std::string& address, const client::Access& access, int workers) {
  const auto channel = client::Connect(address, access);
  int up = 0;
  for (int i = 0; i < 1200 && up < workers; ++i) {
    const auto cluster = client::RequestCluster(channel);
    if (cluster.ok()) up = cluster->workers_size();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return up;
}

TEST_F(Tls, OnlyTheRightCertificatesAreServed) {
  const auto service =
      StartSecured({.arguments = Coordinator(), .worker_arguments = Worker()}).value();
  const std::string address = service->address();
  const JobEnd end = RunJob(address, SmallJob(1), {.max_attempts = 1, .access = Caller()});
  EXPECT_EQ(end.verdict, Verdict::kRight) << end.status << end.what;

  const Identity expired = Issue("expired", {.valid_from = -7200, .valid_until = -3600});
  const Identity unborn = Issue("unborn", {.valid_from = 3600, .valid_until = 7200});
  const Identity strange = IssueBy(unauthenticated_, "strange", {});
  unauthenticated_.WriteTo(folder_ / "strange_ca.crt");
  const auto with = [&](const Identity& identity) {
    client::Access access = Caller();
    access.cert = identity.cert;
    access.key = identity.key;
    return access;
  };
  client::Access nameless = Caller(), named = Caller(), misnamed = Caller(), other_ca = Caller();
  nameless.cert = nameless.key = "";
  named.server_name = "coordinator";
  misnamed.server_name = "another.host";
  other_ca.ca = folder_ / "strange_ca.crt";
  EXPECT_TRUE(Ask(address, Caller()).ok());
  EXPECT_TRUE(Ask(address, named).ok());
  const std::pair<const char*, client::Access> refused[] = {
      {"in clear text", {}},
      {"without a certificate", nameless},
      {"expired", with(expired)},
      {"not valid yet", with(unborn)},
      {"of another authority", with(strange)},
      {"that asks for another name", misnamed},
      {"that trusts another authority", other_ca}};
  for (const auto& [who, access] : refused) {
    const absl::Status status = Ask(address, access);
    EXPECT_TRUE(absl::IsUnavailable(status)) << who << ": " << status;
  }
  // Callers without a name would share their jobs.
  const Identity nameless_caller = Issue("nameless", {.common_name = "", .alternative_names = ""});
  const absl::Status unnamed = Ask(address, with(nameless_caller));
  EXPECT_TRUE(absl::IsUnauthenticated(unnamed)) << unnamed;
  EXPECT_EQ(wire::ReasonOf(unnamed), "PEER_NAME");
  const JobEnd of_nameless =
      RunJob(address, SmallJob(1), {.max_attempts = 1, .access = with(nameless_caller)});
  EXPECT_EQ(of_nameless.reason, "PEER_NAME") << of_nameless.status;
  EXPECT_TRUE(Ask(address, Caller()).ok()) << "after all that";

  // HTTP requires no certificate, and shows no job to such callers.
  for (const auto& [path, status] : {std::pair("/", 403), std::pair("/metrics", 200)}) {
    const auto answer = HttpGet({.port = service->http_port(), .path = path, .ca = ca_});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, status) << path;
    for (const char* certificate : {"service", "http", "cluster_ca", "caller_ca"}) {
      const bool expiry_shown =
          answer->body.find(
              absl::StrCat("hilbert_ring_certificate_expiry_timestamp_seconds{certificate=\"",
                           certificate, "\"} ")) != std::string::npos;
      EXPECT_EQ(expiry_shown, status == 200) << certificate;
    }
  }
}

TEST_F(Tls, OnlyTheRightWorkersJoin) {
  const auto service =
      StartSecured({.arguments = Coordinator(), .worker_arguments = Worker()}).value();
  const auto arguments = [&](const Identity& identity, const std::string& ca) {
    return std::vector<std::string>{"--tls-cert=" + identity.cert, "--tls-key=" + identity.key,
                                    "--tls-ca=" + ca, "--tls-peer-name=coordinator"};
  };
  unauthenticated_.WriteTo(folder_ / "strange_ca.crt");
  const Identity strange =
      IssueBy(unauthenticated_, "strange", {.alternative_names = "DNS:worker"});
  const Identity expired =
      Issue("expired", {.alternative_names = "DNS:worker", .valid_until = -60});
  const Identity misnamed = Issue("misnamed", {.alternative_names = "DNS:caller,IP:127.0.0.1"});
  auto wrong_coordinator = arguments(worker_, ca_);
  wrong_coordinator.back() = "--tls-peer-name=somebody";
  for (const auto& wrong : {std::vector<std::string>{}, arguments(strange, ca_),
                            arguments(expired, ca_), arguments(misnamed, ca_),
                            arguments(worker_, folder_ / "strange_ca.crt"), wrong_coordinator}) {
    ASSERT_TRUE(service->AddWorker(wrong).ok());
  }
  ASSERT_TRUE(service->AddWorker(Worker()).ok());
  AwaitWorkers(service->address(), Caller(), 3);
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(60);
  // Each worker logs its refusal once.
  std::string logs;
  while (Clock::now() < limit) {
    logs = service->Logs();
    int refused = 0;
    for (size_t at = 0; (at = logs.find("not registered with", at)) != std::string::npos; ++at) {
      ++refused;
    }
    if (refused >= 6 && logs.find("does not have the name worker") != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_THAT(logs, HasSubstr("does not have the name worker"));
  EXPECT_EQ(AwaitWorkers(service->address(), Caller(), 3), 3) << logs;
}

// Replaces everything while jobs run, also the authority: both are trusted, then new certificates
// are shown, then the old authority is dropped.
TEST_F(Tls, RotationFailsNoJob) {
  const auto service =
      StartSecured({.arguments = Coordinator(), .worker_arguments = Worker()}).value();
  const std::string address = service->address();
  std::mutex mutex;
  client::Access access = Caller();  // guarded by mutex
  JobsUnderLoad jobs(address, 10, [&] {
    const std::lock_guard lock(mutex);
    return access;
  });
  const CertificateAuthority next;
  next.WriteTo(folder_ / "next_ca.crt");
  const std::string old_ca = FileText(ca_), new_ca = FileText(folder_ / "next_ca.crt");
  const auto trust = [&](const std::string& bundle) {
    std::ofstream(folder_ / "ca.new") << bundle;
    std::filesystem::rename(folder_ / "ca.new", ca_);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    EXPECT_TRUE(jobs.GoOn());
  };
  trust(old_ca + new_ca);
  IssueBy(next, "service", ForService());
  IssueBy(next, "worker", ForWorker());
  caller_ = IssueBy(next, "next_caller", {.common_name = "lab", .alternative_names = ""});
  {
    const std::lock_guard lock(mutex);
    access = Caller();
  }
  client::Access of_new = Caller();
  of_new.ca = folder_ / "next_ca.crt";
  EXPECT_TRUE(Await([&] { return Ask(address, of_new).ok(); }))
      << "no certificate of the new authority";
  EXPECT_TRUE(jobs.GoOn());
  trust(new_ca);
  const Identity former = Issue("former", {});
  client::Access of_old = Caller();
  of_old.cert = former.cert;
  of_old.key = former.key;
  EXPECT_TRUE(Await([&] { return !Ask(address, of_old).ok(); }))
      << "the old authority is still trusted";
  ASSERT_TRUE(service->AddWorker(Worker()).ok());
  EXPECT_EQ(AwaitWorkers(address, Caller(), 3), 3) << service->Logs();
  const JobEnd last = jobs.Stop();
  EXPECT_EQ(last.verdict, Verdict::kRight) << last.status << last.what;
}

void CopyInto(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

// gRPC's own watcher would end its process for an empty file.
TEST_F(Tls, BrieflyInvalidFilesEndNoProcess) {
  const auto service =
      StartSecured({.arguments = Coordinator(), .worker_arguments = Worker()}).value();
  const std::string address = service->address();
  JobsUnderLoad jobs(address, 20, [this] { return Caller(); });
  const std::vector<std::string> certs = {service_.cert, worker_.cert};
  std::map<std::string, std::string> right;
  for (const std::string& path : certs) right[path] = FileText(path);
  const auto while_they_are = [&](const auto& wrong) {
    for (const std::string& path : certs) wrong(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    for (const std::string& path : certs) {
      std::filesystem::remove(path);
      CopyInto(path, right[path]);
    }
  };
  while_they_are([](const auto& path) { std::filesystem::resize_file(path, 0); });
  while_they_are([](const auto& path) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  });
  while_they_are([](const auto& path) {
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
  });
  const Clock::time_point copied_until = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < copied_until) {
    for (const std::string& path : certs) CopyInto(path, right[path]);
  }
  EXPECT_TRUE(jobs.GoOn());
  const JobEnd last = jobs.Stop();
  EXPECT_EQ(last.verdict, Verdict::kRight) << last.status << last.what;
  EXPECT_EQ(service->Workers().size(), 2U);
  for (const char* port : {"--grpc-port", "--membership-port", "--port", "calls"}) {
    EXPECT_THAT(service->Logs(),
                HasSubstr(absl::StrCat("gRPC (", port, ") keeps its certificate: --tls-cert: ")));
  }

  const CertificateAuthority next;
  next.WriteTo(folder_ / "next_ca.crt");
  IssueBy(next, "service", ForService());
  client::Access of_new = Caller();
  of_new.ca = folder_ / "next_ca.crt";
  EXPECT_TRUE(Await([&] { return Ask(address, of_new).ok(); }))
      << "the new certificate is not taken";
}

}  // namespace
}  // namespace hilbert_ring::testing
