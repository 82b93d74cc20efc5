// Settings of both processes. Each is a flag, else an environment variable (--grpc-port:
// HILBERT_RING_GRPC_PORT), else a line of the file of --config (grpc-port=8001), else a default.
// Unknown flags and lines are errors; unknown variables cause warnings, because all programs share
// the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/process/security_settings.h"

namespace hilbert_ring::server {

using Milliseconds = std::chrono::milliseconds;

inline constexpr double kGpuMemoryFraction = 0.9;

struct DeviceSettings {
  // "cpu"; "cuda:0"; "auto": a GPU if there is one, else the CPU; "auto:1" prefers that GPU.
  std::string device = "auto";
  double gpu_memory_fraction = kGpuMemoryFraction;
  std::string attention_kernel = "auto";  // of a GPU
};

struct CoordinatorSettings {
  std::string grpc_host;  // empty hosts: set by CompleteHosts
  int grpc_port = 8001;   // of every port 0: a free one
  std::string http_host;
  int http_port = 8002;
  std::string membership_host;  // of the workers' port
  int membership_port = 8003;
  std::string join_token_file;  // empty: drawn for spawned workers, else not required
  SecuritySettings security;
  CallerSettings callers;
  std::string ready_file;

  int spawn_workers = 1;           // 0: workers start elsewhere
  int min_workers = 1;             // for readiness, without spawned workers
  int worker_threads = 0;          // of a spawned worker; 0: hardware threads / spawned workers
  std::string device = "auto";     // of a spawned worker, as DeviceSettings::device
  int64_t memory_limit_bytes = 0;  // of a spawned worker; 0: 80 % of memory / spawned workers
  Milliseconds worker_timeout{2000};

  std::string data_root;  // of files that jobs pass by path; empty: disabled

  std::string model_dir;                          // empty: no models
  int64_t model_memory_bytes = int64_t{2} << 30;  // of a spawned worker

  bool share_memory = true;  // with workers of this host

  int job_workers = 0;  // of a job; 0: the number that finishes earliest

  // FitMemory lowers the bounds of memory on small machines.
  int max_queue = 64;                                 // waiting jobs
  int max_calls_per_peer = 256;                       // open
  Milliseconds open_timeout{5'000};                   // until a call's first message
  int64_t waiting_memory_bytes = int64_t{512} << 20;  // of all calls before admission
  int64_t transport_memory_bytes = int64_t{2} << 30;  // of messages that no handler has taken
  Milliseconds queue_timeout{3'600'000};
  Milliseconds job_timeout{3'600'000};             // of a job's compute
  Milliseconds idle_timeout{300'000};              // of a client that neither sends nor reads
  int64_t least_rate_bytes = int64_t{256} << 10;   // a second, of a client
  Milliseconds exit_timeout{10'000};               // for running jobs, on SIGTERM
  Milliseconds stall_timeout{30'000};              // without progress of a job's workers
  int max_retries = 5;                             // of a job whose workers are lost
  Milliseconds recovery_timeout{30'000};           // for enough workers to try again
  int64_t copy_memory_bytes = int64_t{1} << 30;    // copies of rows sent to other hosts
  int64_t stream_memory_bytes = int64_t{4} << 30;  // of all streams
  int check_rows = 0;                              // of each job, computed again
  bool warm_up = true;
  int64_t total_order_memory_limit_bytes = int64_t{4} << 30;  // of all jobs
  int64_t order_cache_bytes = int64_t{128} << 20;

  int64_t max_tokens = int64_t{1} << 40;
  std::string log_level = "info";
  std::string log_format = "text";    // or "json", an object a line
  std::vector<std::string> warnings;  // for the log
};

struct WorkerSettings {
  std::string coordinator = "127.0.0.1:8003";  // its membership port
  std::string join_token_file;                 // empty: no token
  SecuritySettings security;
  std::string host = "127.0.0.1";      // at which the coordinator and peers reach this worker
  int port = 8101;                     // of every port 0: a free one
  int threads = 0;                     // 0: all that the process may use
  std::string cpu_instructions;        // empty: the best of the machine
  int64_t memory_limit_bytes = 0;      // of jobs; 0: 80 % of memory, or a GPU's fraction
  double memory_share = 1.0;           // of that 80 %, if workers share the machine
  bool share_memory = true;            // with a coordinator of this host
  Milliseconds feed_timeout{600'000};  // without news of a job's rows
  Milliseconds exit_timeout{10'000};   // for running jobs, on SIGTERM
  Milliseconds open_timeout{5'000};    // until a call's first message
  DeviceSettings device;
  std::string data_root;  // of files that jobs pass by path; empty: disabled
  std::string model_dir;  // empty: no models
  int64_t model_memory_bytes = int64_t{2} << 30;  // beside that of jobs
  std::string http_host;                          // empty: as `host`
  WorkerHttpSettings http;
  int http_port = 0;  // of /metrics and /livez
  std::string ready_file;
  std::string log_level = "info";
  std::string log_format = "text";    // or "json", an object a line
  std::vector<std::string> warnings;  // for the log
};

std::optional<int> GpuOrdinal(const std::string& device);  // N of "cuda:N", "auto:N"

// Returns the settings, or an exit code: 0 after --help, 2 after an error on standard error.
std::variant<CoordinatorSettings, int> ParseCoordinatorSettings(int argc, char** argv);
std::variant<WorkerSettings, int> ParseWorkerSettings(int argc, char** argv);

}  // namespace hilbert_ring::server
