#include "server/process/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/spec/nearest_name.h"
#include "server/process/memory_bounds.h"
#include "server/process/ready_file.h"
#include "server/process/regular_file.h"
#include "server/process/setting_options.h"
#include "server/process/settings_sources.h"
#include "server/process/version.h"
#include "wire/server_address.h"

namespace hilbert_ring::server {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxWorkersOfAJob = 4096;
constexpr int kMaxThreads = 4096;
constexpr int kMaxSpawned = 256;
constexpr uint64_t kLeastWaitingBytes = 5 << 20;  // of a call
constexpr uint64_t kLeastTransportBytes = 1 << 20;

void AddCoordinatorSettings(CLI::App& app, CoordinatorSettings& s) {
  app.option_defaults()->always_capture_default();
  app.add_option("--grpc-host", s.grpc_host,
                 "address of the gRPC port; not given: 0.0.0.0 if callers need TLS and a token or "
                 "certificate, or with --insecure; else 127.0.0.1, or ::1 on a host without IPv4");
  app.add_option("--grpc-port", s.grpc_port, "gRPC port; 0: a free port")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option("--http-host", s.http_host,
                 "address of the HTTP port; not given: as --grpc-host's default");
  app.add_option("--http-port", s.http_port,
                 "HTTP port of /livez, /readyz and /metrics; 0: a free port")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option("--membership-host", s.membership_host,
                 "address of the workers' port; not given: as --grpc-host if workers are started "
                 "elsewhere and have certificates, or with --insecure; else the loopback address");
  app.add_option("--membership-port", s.membership_port,
                 "port at which workers register; 0: a free port")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option("--join-token-file", s.join_token_file,
                 "file with the join token of workers, at least 16 characters; not given: spawned "
                 "workers get a drawn token, other workers need no token");
  AddSecuritySettings(app, s.security);
  AddCallerSettings(app, s.callers);
  app.add_option("--ready-file", s.ready_file, "JSON file, written when the service is ready");
  app.add_option("--spawn-workers", s.spawn_workers,
                 "workers to start on this host; 0: workers register from elsewhere")
      ->check(CLI::Range(0, kMaxSpawned));
  app.add_option("--min-workers", s.min_workers,
                 "workers that make the service ready, with --spawn-workers=0")
      ->check(CLI::Range(1, kMaxThreads));
  app.add_option("--worker-threads", s.worker_threads,
                 "threads of each spawned worker; 0: its share of the machine's")
      ->check(CLI::Range(0, kMaxThreads));
  AddDevice(app, s.device);
  AddBytes(app, "--memory-limit", s.memory_limit_bytes,
           "memory for jobs of each spawned worker; 0: its share of 80 % of the machine's");
  app.add_option(
      "--data-root", s.data_root,
      "folder of files that jobs pass by path, which the workers see too; not given: no folder");
  app.add_option("--model-dir", s.model_dir,
                 "folder of models, each a folder of its name with config.json and "
                 "model.safetensors, which the workers have too; not given: no models");
  AddBytes(app, "--model-memory", s.model_memory_bytes,
           "memory for models' weights of each spawned worker, beside that for jobs");
  AddDuration(app, "--worker-timeout", s.worker_timeout,
              "longest silence of a worker, after which it is lost", kLeastWorkerTimeoutSeconds);
  app.add_option("--share-memory", s.share_memory,
                 "true: workers on this host map their shards' memory, and spawned workers share "
                 "models' weights; false: rows are sent to them");
  app.add_option(
         "--job-workers", s.job_workers,
         "workers of a job, or all if there are fewer; 0: the number that finishes earliest")
      ->check(CLI::Range(0, kMaxWorkersOfAJob));
  app.add_option("--max-queue", s.max_queue, "most jobs that wait")->check(CLI::Range(0, 100'000));
  app.add_option("--max-calls-per-peer", s.max_calls_per_peer, "most open streams of a host")
      ->check(CLI::Range(1, 100'000));
  AddOpenTimeout(app, s.open_timeout);
  AddBytes(app, "--waiting-memory", s.waiting_memory_bytes,
           "memory of all calls before admission: 5 MiB of a call until its first message, then "
           "that message and 1 MiB; at least 5 MiB")
      ->check(AtLeastBytes(kLeastWaitingBytes));
  AddBytes(app, "--transport-memory", s.transport_memory_bytes,
           "memory of all callers' messages that no handler has taken; beyond it arbitrary calls "
           "with messages under way end; at least 1 MiB")
      ->check(AtLeastBytes(kLeastTransportBytes));
  AddDuration(app, "--queue-timeout", s.queue_timeout, "longest wait of a job for its turn");
  AddDuration(app, "--job-timeout", s.job_timeout, "longest compute of a job");
  AddDuration(app, "--idle-timeout", s.idle_timeout,
              "longest time in which a client neither sends nor reads while its job waits for it");
  AddBytes(app, "--least-rate", s.least_rate_bytes,
           "bytes a second at which a client must send rows and read outputs; a client that "
           "falls behind by the idle timeout in total loses its job; 0: any rate");
  AddDuration(app, "--stall-timeout", s.stall_timeout,
              "longest time without progress of a job's workers, after which it is tried again "
              "without the worker that hangs");
  AddBytes(app, "--copy-memory", s.copy_memory_bytes,
           "memory for copies of rows sent to workers of other hosts, from which a lost worker's "
           "part is computed again; beyond it clients send rows again");
  AddBytes(app, "--stream-memory", s.stream_memory_bytes,
           "memory for rows and outputs of all streams without end: an eighth for a stream, at "
           "most half for a caller; further streams are refused");
  app.add_option("--check-rows", s.check_rows,
                 "rows of each attention job, not of encoders' jobs, computed again in float64; a "
                 "mismatch fails the job and its worker gets no more")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--warm-up", s.warm_up,
                 "true: ready after a first job with checked rows over all workers; false: ready "
                 "as soon as the workers have joined");
  AddDuration(app, "--exit-timeout", s.exit_timeout, "time for running jobs to end after SIGTERM");
  AddBytes(app, "--total-order-memory-limit", s.total_order_memory_limit_bytes,
           "memory for coordinates of all jobs that run or wait, at most a quarter for a job");
  app.add_option("--max-tokens", s.max_tokens, "tokens of a job")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  AddLogging(app, s.log_level, s.log_format);
}

void AddWorkerSettings(CLI::App& app, WorkerSettings& s) {
  app.option_defaults()->always_capture_default();
  app.add_option("--coordinator", s.coordinator, "HOST:PORT of the coordinator's membership port")
      ->check([](const std::string& given) {
        // CLI11 adds the flag itself.
        constexpr std::string_view kFlag = "--coordinator";
        const absl::Status status = wire::CheckServerAddress(kFlag, given);
        return status.ok() ? "" : std::string(status.message().substr(kFlag.size() + 2));
      });
  app.add_option("--join-token-file", s.join_token_file,
                 "file with the coordinator's join token; not given: no token");
  app.add_option("--host", s.host,
                 "address at which the coordinator and other workers reach this worker");
  app.add_option("--port", s.port, "gRPC port; 0: a free port")->check(CLI::Range(0, kMaxPort));
  app.add_option("--http-host", s.http_host, "address of the HTTP port; not given: as --host");
  app.add_option(
         "--http-port", s.http_port,
         "HTTP port of /livez and /metrics; 0: a free port, which the coordinator's /targets lists")
      ->check(CLI::Range(0, kMaxPort));
  AddWorkerHttpSettings(app, s.http);
  app.add_option("--threads", s.threads,
                 "threads of the CPU device; 0: all that the process may use")
      ->check(CLI::Range(0, kMaxThreads));
  AddCpuInstructions(app, s.cpu_instructions);
  AddDevice(app, s.device.device);
  AddGpu(app, s.device);
  AddBytes(app, "--memory-limit", s.memory_limit_bytes,
           "memory for jobs; 0: 80 % of the machine's, or the GPU's fraction");
  app.add_option("--memory-share", s.memory_share,
                 "part of those 80 %, if several workers share the machine")
      ->check(Between(0.001, 1.0));
  app.add_option("--data-root", s.data_root,
                 "the coordinator's --data-root as this worker sees it; not given: no folder");
  app.add_option("--model-dir", s.model_dir,
                 "folder of models, each a folder of its name; not given: no models");
  AddBytes(app, "--model-memory", s.model_memory_bytes,
           "memory for models' weights, beside that for jobs; the least recently used models are "
           "unloaded");
  app.add_option("--share-memory", s.share_memory,
                 "true: maps shards' memory of a coordinator on this host, and shares models' "
                 "weights with workers on this host; false: rows come by stream");
  AddOpenTimeout(app, s.open_timeout);
  AddDuration(app, "--exit-timeout", s.exit_timeout,
              "time for running jobs to end after SIGTERM, without new jobs");
  AddDuration(
      app, "--feed-timeout", s.feed_timeout,
      "longest time without news of a job's rows, longer than the coordinator's --idle-timeout");
  AddSecuritySettings(app, s.security);
  app.add_option("--ready-file", s.ready_file, "JSON file, written when the worker is registered");
  AddLogging(app, s.log_level, s.log_format);
}

std::vector<std::string> Flags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name != "help" && name != "version" && name != "config") flags.push_back(name);
    }
  }
  return flags;
}

constexpr int kExitBadSettings = 2;

std::vector<std::string> KnownVariables() {
  CoordinatorSettings coordinator;
  WorkerSettings worker;
  CLI::App coordinator_app, worker_app;
  AddCoordinatorSettings(coordinator_app, coordinator);
  AddWorkerSettings(worker_app, worker);
  std::vector<std::string> known = {VariableOf("config")};
  for (const char* of_command_line : {"SERVER", "TLS", "CA", "CERT", "KEY", "SERVER_NAME",
                                      "TOKEN_FILE", "TOKEN", "PYTHON", "BIN_DIR"}) {
    known.push_back(absl::StrCat(kVariablePrefix, of_command_line));
  }
  for (const CLI::App* app : {&coordinator_app, &worker_app}) {
    for (const std::string& flag : Flags(*app)) known.push_back(VariableOf(flag));
  }
  return known;
}

// The last value of a flag, even if other arguments are wrong; empty: not given.
std::string LastValue(const std::string& flag, const std::vector<std::string>& arguments) {
  std::string value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == flag && i + 1 < arguments.size()) value = arguments[i + 1];
    if (arguments[i].starts_with(flag + "=")) value = arguments[i].substr(flag.size() + 1);
  }
  return value;
}

bool IsGiven(const std::string& flag, const std::vector<std::string>& arguments) {
  return std::ranges::any_of(arguments, [&flag](const std::string& argument) {
    return argument.substr(0, argument.find('=')) == flag;
  });
}

// Adds the lines of the file whose flags are not given. Returns an error message, or empty.
std::string AddFile(const std::string& path, const std::vector<std::string>& flags,
                    std::vector<std::string>& arguments) {
  const auto text = ReadRegularFile(path, kMostConfigBytes);
  if (!text.ok()) return "";  // the option's check refuses it
  const auto lines = ParseSettingsFile(*text);
  if (!lines.ok()) return absl::StrCat("--config: ", lines.status().message());
  std::string unknown;
  for (const auto& [key, value] : *lines) {
    const std::string flag = "--" + key;
    if (!IsGiven(flag, arguments)) {
      arguments.insert(arguments.begin(), absl::StrCat(flag, "=", value));
    }
    if (!unknown.empty() || std::ranges::find(flags, key) != flags.end()) continue;
    unknown = absl::StrCat("--config: unknown key ", key, NearestNameHint(key, flags));
  }
  return unknown;
}

constexpr char kSeeHelp[] = "\nRun with --help for more information.";

std::string ReasonOf(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& argument : app.remaining()) {
      const std::string flag = argument.substr(0, argument.find('='));
      std::vector<std::string> flags;
      for (const std::string& name : Flags(app)) flags.push_back("--" + name);
      absl::StrAppend(&text, NearestNameHint(flag, flags));
    }
  }
  return text + kSeeHelp;
}

template <typename Settings>
std::variant<Settings, int> Parse(CLI::App& app, Settings& settings, int argc, char** argv) {
  app.set_version_flag("--version", std::string(kVersion));
  std::string config;
  app.add_option("--config", config, "file of lines such as grpc-port=8001")
      ->check(SmallRegularFile())
      ->type_name("");
  const std::vector<std::string> flags = Flags(app);
  app.footer(
      "Every setting can be a flag, an environment variable (HILBERT_RING_ and the flag's name in "
      "capitals with underscores) or a line of the configuration file; the first of these counts. "
      "An unknown key of the file is an error.");
  for (CLI::Option* option : app.get_options()) {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    RequireExactValue(*option);
  }
  std::vector<std::string> variables = flags;
  variables.push_back("config");
  EnvironmentSettings environment = ReadEnvironment(variables, argc, argv);
  std::vector<std::string> arguments;
  for (const auto& [flag, value] : environment.arguments) {
    arguments.push_back(absl::StrCat(flag, "=", value));
  }
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  const std::string bad_file = AddFile(LastValue("--config", arguments), flags, arguments);
  const auto refuse = [&](const std::string& why) {
    // Removes the file after a failed start.
    const ReadyFile stale(LastValue("--ready-file", arguments));
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(),
                 WithVariables(why, environment).c_str());
    return kExitBadSettings;
  };
  if (!bad_file.empty()) return refuse(bad_file + kSeeHelp);
  try {
    CheckHaveValues(app, arguments);
    std::vector<std::string> last_first(arguments.rbegin(),
                                        arguments.rend());  // as CLI11 takes them
    app.parse(std::move(last_first));
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : refuse(ReasonOf(app, error));
  }
  if (const absl::Status ready = ReadyFile::Check(settings.ready_file); !ready.ok()) {
    return refuse(std::string(ready.message()));
  }
  if (const std::string wrong = CompleteHosts(settings); !wrong.empty()) return refuse(wrong);
  if (const std::string wrong = FitMemory(app, settings); !wrong.empty()) return refuse(wrong);
  const ReadyFile stale(settings.ready_file);
  settings.warnings = std::move(environment.warnings);
  for (std::string& unknown : UnknownVariables(KnownVariables())) {
    settings.warnings.push_back(std::move(unknown));
  }
  for (std::string& open : OpenPorts(settings)) settings.warnings.push_back(std::move(open));
  return settings;
}

}  // namespace

std::variant<CoordinatorSettings, int> ParseCoordinatorSettings(int argc, char** argv) {
  CoordinatorSettings settings;
  CLI::App app("Serves attention jobs over gRPC and shards them over worker processes.",
               "hilbert-ring-coordinator");
  AddCoordinatorSettings(app, settings);
  return Parse(app, settings, argc, argv);
}

std::variant<WorkerSettings, int> ParseWorkerSettings(int argc, char** argv) {
  WorkerSettings settings;
  CLI::App app("Holds shards of attention jobs and computes them.", "hilbert-ring-worker");
  AddWorkerSettings(app, settings);
  return Parse(app, settings, argc, argv);
}

}  // namespace hilbert_ring::server
