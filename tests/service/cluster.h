// A real coordinator process with real worker processes, for one test.
//
//   auto cluster = Cluster::Start({.workers = 2});
//   auto stub = cluster->Stub();
//   ...
//   EXPECT_EQ(cluster->Stop(), 0);   // SIGTERM; the exit status
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"

namespace hilbert_ring::testing {

struct ClusterOptions {
  int workers = 2;
  std::vector<std::string> arguments;  // further ones of the coordinator
  bool spread = true;                  // every job over all workers, so that small ones use rings
};

class Cluster {
 public:
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(const ClusterOptions& options);
  ~Cluster();  // stops it, by force where it must

  std::string address() const;
  int http_port() const { return http_port_; }
  std::string membership_address() const;  // where workers register
  pid_t pid() const { return pid_; }
  std::vector<pid_t> WorkerPids() const;  // live children of the coordinator

  // A stub over a channel of its own.
  std::unique_ptr<v1::AttentionService::Stub> Stub() const;
  std::shared_ptr<grpc::Channel> Channel() const;

  // Body of an HTTP GET, or an error that holds the HTTP status.
  absl::StatusOr<std::string> HttpGet(const std::string& path) const;

  int Stop();
  void Signal(int signal) const;

 private:
  Cluster() = default;
  pid_t pid_ = -1;
  int grpc_port_ = 0;
  int http_port_ = 0;
  int membership_port_ = 0;
  std::string folder_;
};

// Memory of a live process, from the kernel's account of it.
struct ProcessMemory {
  int64_t anonymous = 0;  // bytes
  int64_t file = 0;
  int64_t shared = 0;
  int64_t resident() const { return anonymous + file + shared; }
};
ProcessMemory MemoryOf(pid_t pid);

// Whether a process is there (zombies are not).
bool IsAlive(pid_t pid);

}  // namespace hilbert_ring::testing
