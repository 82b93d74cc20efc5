// Settings of both processes that say who may reach them, and what no setting may leave open by
// mistake: without TLS, and without a way to tell callers or workers apart, a port is on the
// loopback address, unless --insecure opens it.
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

// Of coordinator and workers among each other, and of the coordinator's other ports.
struct SecuritySettings {
  TlsFiles tls;           // tls.ca: of the other processes of the service
  std::string peer_name;  // that their certificates must have; empty: of those called, their host
  bool insecure = false;  // on a network without
};

// Of callers.
struct CallerSettings {
  std::string client_ca;        // that their certificates are of; empty: none is asked for
  std::string auth_token_file;  // empty: none is asked for
};

// Of a worker's HTTP port, whose readers are the coordinator's callers.
struct WorkerHttpSettings {
  std::string cert, key;        // empty: those of SecuritySettings::tls
  std::string auth_token_file;  // empty: no token is asked for
};

void AddSecuritySettings(CLI::App& app, SecuritySettings& settings);
void AddCallerSettings(CLI::App& app, CallerSettings& settings);
void AddWorkerHttpSettings(CLI::App& app, WorkerHttpSettings& settings);

// "127.0.0.1", "::1", "localhost" and their like.
bool IsLoopback(const std::string& host);

// Fills in the hosts that were not given, and takes the brackets of IPv6 addresses away. What is
// wrong with the settings, as a sentence; empty: nothing.
std::string CompleteHosts(CoordinatorSettings& settings);
std::string CompleteHosts(WorkerSettings& settings);

// What --insecure leaves open, a sentence each, for the log.
std::vector<std::string> OpenPorts(const CoordinatorSettings& settings);
std::vector<std::string> OpenPorts(const WorkerSettings& settings);

}  // namespace hilbert_ring::server
