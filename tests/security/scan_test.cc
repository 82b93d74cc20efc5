// A new method fails the test until the table has its answers.
#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/encoder.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "nlohmann/json.hpp"
#include "tests/security/tls_fixture.h"
#include "tests/support/http_get.h"

namespace hilbert_ring::testing {
namespace {

constexpr char kToken[] = "token-of-the-lab-0123456789";
constexpr char kObserver[] = "token-of-the-eye-0123456789";
constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";

std::string Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                 const std::string& authorization) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  const grpc::Slice nothing;
  bool goes_on = next();
  if (goes_on) {
    call->WriteLast(grpc::ByteBuffer(&nothing, 1), grpc::WriteOptions(), nullptr);
    goes_on = next();
  }
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  const bool answered = next();
  if (answered) context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return answered ? "answered"
                  : absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
}

std::vector<std::string> AllMethods() {
  std::vector<std::string> methods = {kCheck, kWatch, kReflection};
  for (const auto* file : {v1::AttendRequest::descriptor()->file(), v1::Model::descriptor()->file(),
                           v1::Heartbeat::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        methods.push_back(absl::StrCat("/", service->full_name(), "/", service->method(j)->name()));
      }
    }
  }
  return methods;
}

std::string ShortName(const std::string& method) { return method.substr(method.rfind('.') + 1); }

using Table = std::map<std::string, std::string>;  // by short name

Table Scan(const std::shared_ptr<grpc::Channel>& channel, const std::string& authorization = "") {
  Table table;
  for (const std::string& method : AllMethods()) {
    table[ShortName(method)] = Call(channel, method, authorization);
  }
  return table;
}

Table All(const std::string& answer, const Table& others = {}) {
  Table table = others;
  for (const std::string& method : AllMethods()) table.emplace(ShortName(method), answer);
  return table;
}

Table Of(const Table& table) { return All("UNIMPLEMENTED", table); }

Table Public(const std::string& ours, const std::string& reflection) {
  return {{"Health/Check", "answered"},
          {"Health/Watch", "answered"},
          {"ServerReflection/ServerReflectionInfo", reflection},
          {"AttentionService/Attend", ours},
          {"AttentionService/AttendStream", ours},
          {"AttentionService/Plan", ours},
          {"AttentionService/GetCluster", ours},
          {"AttentionService/ListJobs", ours},
          {"AttentionService/CancelJob", ours},
          {"AttentionService/GetDataRoot", ours},
          {"EncoderService/Encode", ours},
          {"EncoderService/PlanEncode", ours},
          {"EncoderService/ListModels", ours},
          {"EncoderService/GetModel", ours}};
}

Table Membership(const std::string& ours) {
  return {{"Health/Check", "answered"},
          {"Health/Watch", "answered"},
          {"MembershipService/Register", ours}};
}

Table WorkerPort() {
  return {{"Health/Check", "answered"},
          {"Health/Watch", "answered"},
          {"WorkerService/Greet", "UNAUTHENTICATED"},
          {"WorkerService/PrepareRing", "UNAUTHENTICATED"},
          {"WorkerService/ConnectRing", "UNAUTHENTICATED"},
          {"WorkerService/CloseRing", "UNAUTHENTICATED"},
          {"WorkerService/Run", "UNAUTHENTICATED"}};
}

const std::map<std::string, int> kUnauthenticatedAnswers = {{"/livez", 200},   {"/readyz", 200},
                                                            {"/metrics", 401}, {"/", 401},
                                                            {"/targets", 401}, {"/none", 404}};
const std::map<std::string, int> kForSubmitters = {{"/livez", 200},   {"/readyz", 200},
                                                   {"/metrics", 403}, {"/", 200},
                                                   {"/targets", 403}, {"/none", 404}};
const std::map<std::string, int> kForObservers = {{"/livez", 200},   {"/readyz", 200},
                                                  {"/metrics", 200}, {"/", 200},
                                                  {"/targets", 200}, {"/none", 404}};

const std::vector<std::string> kUnauthenticatedTokens = {"", "Bearer token-of-somebody-012345",
                                                         absl::StrCat("Basic ", kObserver)};

const std::map<std::string, int> kOfWorkerUnauthenticated = {{"/livez", 200},   {"/metrics", 401},
                                                             {"/readyz", 404},  {"/", 404},
                                                             {"/targets", 404}, {"/none", 404}};

std::map<std::string, int> OfWorker(int metrics) {
  std::map<std::string, int> statuses = kOfWorkerUnauthenticated;
  statuses["/metrics"] = metrics;
  return statuses;
}

class ScanTest : public TlsFixture {
 protected:
  ScanTest() {
    std::ofstream(folder_ / "tokens")
        << R"({"name": "lab", "role": "submit", "token": ")" << kToken << "\"}\n"
        << R"({"name": "eye", "role": "observe", "token": ")" << kObserver << "\"}\n";
    std::ofstream(folder_ / "join") << "join-token-0123456789abcdef\n";
  }

  std::shared_ptr<grpc::Channel> Plain(int port) const {
    return grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                               grpc::InsecureChannelCredentials());
  }
  std::shared_ptr<grpc::Channel> Tls(int port, const Identity& identity = {}) const {
    return grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                               grpc::SslCredentials({.pem_root_certs = Text(ca_),
                                                     .pem_private_key = Text(identity.key),
                                                     .pem_cert_chain = Text(identity.cert)}));
  }
  static std::string Text(const std::string& path) {
    if (path.empty()) return "";
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::map<std::string, int> ScanHttp(int port, const std::string& ca,
                                      const std::string& authorization = "") const {
    std::map<std::string, int> statuses;
    for (const auto& [path, of_unauthenticated] : kUnauthenticatedAnswers) {
      statuses[path] = HttpStatus(port, path, ca, authorization);
    }
    return statuses;
  }
  void ExpectTokensOfWorker(int port, const std::string& ca) const {
    for (const std::string& shown : kUnauthenticatedTokens) {
      EXPECT_EQ(ScanHttp(port, ca, shown), kOfWorkerUnauthenticated) << shown;
    }
    EXPECT_EQ(ScanHttp(port, ca, absl::StrCat("Bearer ", kToken)), OfWorker(403));
    EXPECT_EQ(ScanHttp(port, ca, absl::StrCat("Bearer ", kObserver)), OfWorker(200));
    const auto seen = HttpGet({.port = port,
                               .path = "/metrics",
                               .ca = ca,
                               .authorization = absl::StrCat("Bearer ", kObserver)});
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_THAT(seen->body, ::testing::HasSubstr(absl::StrCat(
                                "hilbert_ring_calls_refused_total{reason=\"AUTH_TOKEN\"} ",
                                kUnauthenticatedTokens.size())));
    EXPECT_THAT(seen->body,
                ::testing::HasSubstr("hilbert_ring_calls_refused_total{reason=\"ROLE\"} 1\n"));
  }
  static int HttpPortOfAWorker(int port, const std::string& ca) {
    const auto answer = HttpGet({.port = port,
                                 .path = "/targets",
                                 .ca = ca,
                                 .authorization = absl::StrCat("Bearer ", kObserver)});
    if (!answer.ok()) return -1;
    const auto targets = nlohmann::json::parse(answer->body);
    const std::string address = targets.at(0).at("targets").at(0);
    return std::stoi(address.substr(address.rfind(':') + 1));
  }
  int HttpStatus(int port, const std::string& path, const std::string& ca,
                 const std::string& authorization = "") const {
    const auto answer =
        HttpGet({.port = port, .path = path, .ca = ca, .authorization = authorization});
    return answer.ok() ? answer->status : -1;
  }
};

TEST_F(ScanTest, WithTlsAndTokens) {
  std::vector<std::string> coordinator = Coordinator();
  coordinator.push_back("--auth-token-file=" + (folder_ / "tokens"));
  std::vector<std::string> workers_arguments = Worker();
  workers_arguments.push_back("--auth-token-file=" + (folder_ / "tokens"));
  const auto service =
      StartSecured({.arguments = coordinator, .worker_arguments = workers_arguments}).value();
  const int callers = service->grpc_port(), workers = service->membership_port();
  const int worker = service->worker_port(0);

  for (const int port : {callers, workers, worker}) {
    EXPECT_EQ(Scan(Plain(port)), All("UNAVAILABLE")) << port;
  }
  for (const int port : {workers, worker}) {
    EXPECT_EQ(Scan(Tls(port)), All("UNAVAILABLE")) << port;
  }
  const Table refused = All("UNAUTHENTICATED", Public("UNAUTHENTICATED", "UNAUTHENTICATED"));
  EXPECT_EQ(Scan(Tls(callers)), refused);
  EXPECT_EQ(Scan(Tls(callers), "Bearer token-of-somebody-012345"), refused);
  EXPECT_EQ(Call(Tls(callers), kReflection, absl::StrCat("Bearer ", kToken)), "answered");
  // A caller's certificate lacks a worker's name.
  EXPECT_EQ(Scan(Tls(workers, caller_)), Of(Membership("UNAUTHENTICATED")));
  // Another worker lacks the token of the coordinator's calls.
  EXPECT_EQ(Scan(Tls(worker, worker_)), Of(WorkerPort()));

  const int http = service->http_port();
  for (const std::string& shown : kUnauthenticatedTokens) {
    EXPECT_EQ(ScanHttp(http, ca_, shown), kUnauthenticatedAnswers) << shown;
  }
  EXPECT_EQ(ScanHttp(http, ca_, absl::StrCat("Bearer ", kToken)), kForSubmitters);
  EXPECT_EQ(ScanHttp(http, ca_, absl::StrCat("Bearer ", kObserver)), kForObservers);
  const std::string by_browser = absl::Base64Escape(absl::StrCat("eye:", kObserver));
  EXPECT_EQ(ScanHttp(http, ca_, absl::StrCat("Basic ", by_browser)), kForObservers);
  for (const auto& [path, status] : ScanHttp(http, "")) EXPECT_EQ(status, -1) << path;
  const int of_worker = HttpPortOfAWorker(http, ca_);
  ExpectTokensOfWorker(of_worker, ca_);
  for (const auto& [path, status] : ScanHttp(of_worker, "")) EXPECT_EQ(status, -1) << path;
}

TEST_F(ScanTest, WithTokensOnTheLoopbackAddress) {
  const auto service =
      StartSecured({.arguments = {"--auth-token-file=" + (folder_ / "tokens"),
                                  "--join-token-file=" + (folder_ / "join")},
                    .worker_arguments = {"--join-token-file=" + (folder_ / "join"),
                                         "--auth-token-file=" + (folder_ / "tokens")}})
          .value();
  EXPECT_EQ(Scan(Plain(service->grpc_port())), Of(Public("UNAUTHENTICATED", "UNIMPLEMENTED")));
  EXPECT_EQ(Scan(Plain(service->membership_port())), Of(Membership("UNAUTHENTICATED")));
  EXPECT_EQ(Scan(Plain(service->worker_port(0))), Of(WorkerPort()));
  EXPECT_EQ(ScanHttp(service->http_port(), ""), kUnauthenticatedAnswers);
  ExpectTokensOfWorker(HttpPortOfAWorker(service->http_port(), ""), "");
}

TEST_F(ScanTest, SpawnedWorkersRequireTheirCoordinatorsCredentials) {
  const std::vector<std::string> secured = {"--tls-cert=" + service_.cert,
                                            "--tls-key=" + service_.key,
                                            "--auth-token-file=" + (folder_ / "tokens")};
  const auto service =
      StartSecured({.arguments = secured, .workers = 1, .place = WorkerPlace::kLocal}).value();
  const int worker = HttpPortOfAWorker(service->http_port(), ca_);
  ExpectTokensOfWorker(worker, ca_);
  for (const auto& [path, status] : ScanHttp(worker, "")) EXPECT_EQ(status, -1) << path;
}

TEST_F(ScanTest, AWorkersHttpHasItsOwnCertificate) {
  const auto service = StartSecured({.arguments = {"--join-token-file=" + (folder_ / "join")},
                                     .worker_arguments = {"--join-token-file=" + (folder_ / "join"),
                                                          "--http-tls-cert=" + worker_.cert,
                                                          "--http-tls-key=" + worker_.key}})
                           .value();
  const int worker = HttpPortOfAWorker(service->http_port(), "");
  EXPECT_EQ(ScanHttp(worker, ca_), OfWorker(200)) << "no token is asked for";
  EXPECT_EQ(HttpStatus(worker, "/livez", ""), -1) << "in clear text";
  EXPECT_EQ(Scan(Plain(service->worker_port(0))), Of(WorkerPort()));
}

}  // namespace
}  // namespace hilbert_ring::testing
