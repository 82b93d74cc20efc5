#include "server/process/security_settings.h"

#include <arpa/inet.h>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "server/process/host_port.h"
#include "server/process/listening_sockets.h"
#include "server/process/settings.h"
#include "wire/server_address.h"

namespace hilbert_ring::server {
namespace {

constexpr char kAll[] = "0.0.0.0";

std::string CheckTls(const SecuritySettings& s) {
  if (s.tls.cert.empty() != s.tls.key.empty()) return "--tls-cert and --tls-key go together";
  if (!s.tls.ca.empty() && s.tls.cert.empty()) return "--tls-ca needs --tls-cert and --tls-key";
  if (!s.peer_name.empty() && s.tls.ca.empty()) return "--tls-peer-name needs --tls-ca";
  return std::string(wire::CheckServerName("--tls-peer-name", s.peer_name).message());
}

bool ForCallers(const CoordinatorSettings& s) {
  return !s.security.tls.cert.empty() &&
         !(s.callers.client_ca.empty() && s.callers.auth_token_file.empty());
}

bool ForWorkers(const SecuritySettings& s) { return !s.tls.ca.empty(); }

std::string Exposed(const std::string& flag, const std::string& host, const std::string& needs) {
  return absl::StrCat(flag, " is ", host, ", must be a loopback address unless ", needs,
                      ", or with --insecure");
}

constexpr char kCallersNeed[] =
    "callers need TLS (--tls-cert, --tls-key), and a token or a certificate (--auth-token-file, "
    "--tls-client-ca)";
constexpr char kWorkersNeed[] =
    "coordinator and workers need certificates (--tls-cert, --tls-key, --tls-ca)";

std::string OpenPort(const char* port, const std::string& host, int number, const char* needs) {
  return absl::StrCat("--insecure: every host that reaches ", HostPort(host, number), " (", port,
                      ") is served, without it ", needs);
}

bool MayBeOn(const std::string& host, bool secure, const SecuritySettings& s) {
  return secure || s.insecure || IsLoopback(host);
}

}  // namespace

void AddSecuritySettings(CLI::App& app, SecuritySettings& s) {
  app.add_option("--tls-cert", s.tls.cert,
                 "file with this process's certificate chain in PEM; read again when it changes, "
                 "like all files of --tls- flags");
  app.add_option("--tls-key", s.tls.key, "file with the certificate's key in PEM");
  app.add_option("--tls-ca", s.tls.ca,
                 "file with CA certificates in PEM: coordinator and workers speak TLS and require "
                 "certificates of it from each other");
  app.add_option("--tls-peer-name", s.peer_name,
                 "name required in the other side's certificate: at the coordinator the workers', "
                 "at a worker the coordinator's; not given: the called host");
  app.add_flag(
      "--insecure", s.insecure,
      "serve on addresses of a network without TLS, or without tokens and certificates of callers");
}

void AddCallerSettings(CLI::App& app, CallerSettings& s) {
  app.add_option("--tls-client-ca", s.client_ca,
                 "file with CA certificates in PEM: callers must have a certificate of it");
  app.add_option(
      "--auth-token-file", s.auth_token_file,
      "file with callers' tokens, names, roles and quotas, a JSON object a line; callers must have "
      "a token of it, so an empty file refuses all; read again when it changes");
}

void AddWorkerHttpSettings(CLI::App& app, WorkerHttpSettings& s) {
  app.add_option("--http-tls-cert", s.cert,
                 "file with the HTTP port's certificate chain in PEM; not given: --tls-cert, and "
                 "without both HTTP is clear text");
  app.add_option("--http-tls-key", s.key, "file with that certificate's key in PEM");
  app.add_option(
      "--auth-token-file", s.auth_token_file,
      "file with tokens as the coordinator's: /metrics requires the role observe or admin, so an "
      "empty file refuses all; read again when it changes; not given: no token is required");
}

bool IsLoopback(const std::string& host) {
  in_addr address = {};
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

std::string CompleteHosts(CoordinatorSettings& s) {
  for (std::string* const host : {&s.grpc_host, &s.http_host, &s.membership_host}) {
    *host = WithoutBrackets(*host);
  }
  if (std::string wrong = CheckTls(s.security); !wrong.empty()) return wrong;
  if (!s.callers.client_ca.empty() && s.security.tls.cert.empty()) {
    return "--tls-client-ca needs --tls-cert and --tls-key";
  }
  if (ForWorkers(s.security) && s.spawn_workers > 0) {
    return "--tls-ca is given, must be with --spawn-workers=0: spawned workers are on the loopback "
           "address";
  }
  const bool callers = ForCallers(s), workers = ForWorkers(s.security);
  const bool open = s.security.insecure;
  const std::string loopback = LoopbackHost();
  if (s.grpc_host.empty()) s.grpc_host = callers || open ? kAll : loopback;
  if (s.http_host.empty()) s.http_host = callers || open ? kAll : loopback;
  if (s.membership_host.empty()) {
    const bool network = s.spawn_workers == 0 && (workers || open);
    s.membership_host = network ? s.grpc_host : loopback;
    if (network && workers && IsLoopback(s.grpc_host)) s.membership_host = kAll;
  }
  if (!MayBeOn(s.grpc_host, callers, s.security)) {
    return Exposed("--grpc-host", s.grpc_host, kCallersNeed);
  }
  if (!MayBeOn(s.http_host, callers, s.security)) {
    return Exposed("--http-host", s.http_host, kCallersNeed);
  }
  if (!MayBeOn(s.membership_host, workers, s.security)) {
    return Exposed("--membership-host", s.membership_host, kWorkersNeed);
  }
  return "";
}

std::string CompleteHosts(WorkerSettings& s) {
  for (std::string* const host : {&s.host, &s.http_host}) *host = WithoutBrackets(*host);
  if (std::string wrong = CheckTls(s.security); !wrong.empty()) return wrong;
  if (!s.security.tls.cert.empty() && s.security.tls.ca.empty()) {
    return "--tls-cert needs --tls-ca: a worker requires a certificate of its coordinator, too";
  }
  if (s.http.cert.empty() != s.http.key.empty()) {
    return "--http-tls-cert and --http-tls-key go together";
  }
  if (!MayBeOn(s.host, ForWorkers(s.security), s.security)) {
    return Exposed("--host", s.host, kWorkersNeed);
  }
  if (!MayBeOn(s.http_host, s.http_host.empty() || ForWorkers(s.security), s.security)) {
    return Exposed("--http-host", s.http_host, kWorkersNeed);
  }
  return "";
}

std::vector<std::string> OpenPorts(const CoordinatorSettings& s) {
  std::vector<std::string> open;
  const auto note = [&](const char* port, const std::string& host, int number, bool secure,
                        const char* needs) {
    if (!secure && !IsLoopback(host)) open.push_back(OpenPort(port, host, number, needs));
  };
  note("--grpc-port", s.grpc_host, s.grpc_port, ForCallers(s), kCallersNeed);
  note("--http-port", s.http_host, s.http_port, ForCallers(s), kCallersNeed);
  note("--membership-port", s.membership_host, s.membership_port, ForWorkers(s.security),
       kWorkersNeed);
  return open;
}

std::vector<std::string> OpenPorts(const WorkerSettings& s) {
  std::vector<std::string> open;
  if (ForWorkers(s.security)) return open;
  if (!IsLoopback(s.host)) open.push_back(OpenPort("--port", s.host, s.port, kWorkersNeed));
  if (!s.http_host.empty() && !IsLoopback(s.http_host) && s.http_host != s.host) {
    open.push_back(OpenPort("--http-port", s.http_host, s.http_port, kWorkersNeed));
  }
  return open;
}

}  // namespace hilbert_ring::server
