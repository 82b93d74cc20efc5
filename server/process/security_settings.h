// Settings of access to both processes. Without TLS and authentication a port is on the loopback
// address, unless --insecure opens it.
#pragma once

#include <string>
#include <vector>

#include "server/process/tls_files.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hilbert_ring::server {

struct CoordinatorSettings;
struct WorkerSettings;

// Between coordinator and workers, and for the coordinator's other ports.
struct SecuritySettings {
  TlsFiles tls;           // tls.ca: of the service's other processes
  std::string peer_name;  // required in their certificates; empty: the called host
  bool insecure = false;  // permits addresses of a network without TLS or authentication
};

struct CallerSettings {
  std::string client_ca;        // of their certificates; empty: not required
  std::string auth_token_file;  // empty: not required
};

// A worker's HTTP port, which the coordinator's callers read.
struct WorkerHttpSettings {
  std::string cert, key;        // empty: as SecuritySettings::tls
  std::string auth_token_file;  // empty: not required
};

void AddSecuritySettings(CLI::App& app, SecuritySettings& settings);
void AddCallerSettings(CLI::App& app, CallerSettings& settings);
void AddWorkerHttpSettings(CLI::App& app, WorkerHttpSettings& settings);

bool IsLoopback(const std::string& host);  // 127.0.0.0/8, "::1", "localhost"

// Sets hosts that were not given. Returns an error message, or empty.
std::string CompleteHosts(CoordinatorSettings& settings);
std::string CompleteHosts(WorkerSettings& settings);

// Warnings of ports that --insecure leaves open.
std::vector<std::string> OpenPorts(const CoordinatorSettings& settings);
std::vector<std::string> OpenPorts(const WorkerSettings& settings);

}  // namespace hilbert_ring::server
