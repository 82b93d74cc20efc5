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
#include "server/process/setting_options.h"
#include "server/process/settings_environment.h"
#include "server/process/settings_file.h"
#include "server/process/version.h"
#include "wire/server_address.h"

namespace hilbert_ring::server {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxWorkersOfAJob = 4096;
constexpr int kMaxThreads = 4096;
constexpr int kMaxSpawned = 256;
constexpr uint64_t kLeastWaitingBytes = 5 << 20;  // of one call
constexpr uint64_t kLeastTransportBytes = 1 << 20;

void AddCoordinatorSettings(CLI::App& app, CoordinatorSettings& s) {
  app.option_defaults()->always_capture_default();
  app.add_option("--grpc-host", s.grpc_host,
                 "address to serve gRPC on; not given: 0.0.0.0 where callers need TLS and are told "
                 "apart, or with --insecure, else 127.0.0.1, or ::1 on a host that has this alone");
  app.add_option("--grpc-port", s.grpc_port, "0: a free port")->check(CLI::Range(0, kMaxPort));
  app.add_option("--http-host", s.http_host,
                 "address to serve HTTP on; not given: as --grpc-host's default");
  app.add_option("--http-port", s.http_port, "/livez, /readyz and /metrics; 0: a free port")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option("--membership-host", s.membership_host,
                 "address to take workers on; not given: as --grpc-host where workers are started "
                 "elsewhere and have certificates, or with --insecure, else the loopback address");
  app.add_option("--membership-port", s.membership_port,
                 "workers register here, never on the gRPC port; 0: a free port")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option("--join-token-file", s.join_token_file,
                 "a file with the token that workers must have to register, of at least 16 "
                 "characters; not given: where workers are spawned no others are taken, else "
                 "whoever reaches the membership port is");
  AddSecuritySettings(app, s.security);
  AddCallerSettings(app, s.callers);
  app.add_option("--ready-file", s.ready_file, "written as JSON when the service is ready");
  app.add_option("--spawn-workers", s.spawn_workers,
                 "local workers to start; 0: workers started elsewhere register themselves")
      ->check(CLI::Range(0, kMaxSpawned));
  app.add_option("--min-workers", s.min_workers, "workers to be ready with, when none is spawned")
      ->check(CLI::Range(1, kMaxThreads));
  app.add_option("--worker-threads", s.worker_threads,
                 "of each spawned worker; 0: its share of the machine's")
      ->check(CLI::Range(0, kMaxThreads));
  AddDevice(app, s.device);
  AddBytes(app, "--memory-limit", s.memory_limit_bytes,
           "memory for jobs of each spawned worker; 0: its share of 80 % of the machine's");
  app.add_option(
      "--data-root", s.data_root,
      "a folder beneath which jobs may name files in place of sending tensors; the workers "
      "see the same; not given: none");
  app.add_option("--model-dir", s.model_dir,
                 "a folder of models, each in a folder of its name: config.json and "
                 "model.safetensors; the workers have the same; not given: none");
  AddBytes(app, "--model-memory", s.model_memory_bytes,
           "memory for the weights of models of each spawned worker, beside that for jobs");
  AddDuration(app, "--worker-timeout", s.worker_timeout,
              "a worker that is not heard of for so long is lost", kLeastWorkerTimeoutSeconds);
  app.add_option("--share-memory", s.share_memory,
                 "true: shards of workers on this host lie in memory that both processes map, and "
                 "spawned workers share the weights of models; false: rows are sent to them");
  app.add_option("--job-workers", s.job_workers,
                 "of a job, or all if there are fewer; 0: as many as end it first")
      ->check(CLI::Range(0, kMaxWorkersOfAJob));
  app.add_option("--max-queue", s.max_queue, "jobs that may wait")->check(CLI::Range(0, 100'000));
  app.add_option("--max-calls-per-peer", s.max_calls_per_peer,
                 "streams that one host may have open")
      ->check(CLI::Range(1, 100'000));
  AddOpenTimeout(app, s.open_timeout);
  AddBytes(app, "--waiting-memory", s.waiting_memory_bytes,
           "memory for all calls that are not admitted: at most 5 MiB of one until its first "
           "message is there, then that message and 1 MiB; 5 MiB at least")
      ->check(AtLeastBytes(kLeastWaitingBytes));
  AddBytes(app, "--transport-memory", s.transport_memory_bytes,
           "memory for what has come from all callers and was not taken yet; beyond it calls end, "
           "any of those whose messages are under way; 1 MiB at least")
      ->check(AtLeastBytes(kLeastTransportBytes));
  AddDuration(app, "--queue-timeout", s.queue_timeout, "a job waits at most so long for its turn");
  AddDuration(app, "--job-timeout", s.job_timeout, "a job's compute takes at most so long");
  AddDuration(app, "--idle-timeout", s.idle_timeout,
              "a client that neither sends nor reads for so long while it is waited for loses its "
              "job");
  AddBytes(
      app, "--least-rate", s.least_rate_bytes,
      "bytes a second at which a client sends rows and reads outputs; one that falls behind it "
      "by the idle timeout in all loses its job; 0: any rate will do");
  AddDuration(
      app, "--stall-timeout", s.stall_timeout,
      "a job none of whose workers makes progress for so long is tried again without the one "
      "that hangs");
  AddBytes(app, "--copy-memory", s.copy_memory_bytes,
           "memory for copies of rows sent to workers of other hosts, from which a lost worker's "
           "part is computed anew; beyond it clients are asked to send rows again");
  AddBytes(
      app, "--stream-memory", s.stream_memory_bytes,
      "memory for rows and outputs of all streams without end; a stream takes an eighth of it, a "
      "caller gets half of it; further streams are refused");
  app.add_option("--check-rows", s.check_rows,
                 "rows of each attention job that are computed again in float64 (of an encoder's "
                 "job: none, which its report notes); a mismatch fails the job and its worker gets "
                 "no more")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--warm-up", s.warm_up,
                 "true: ready once a first job over all workers, whose rows are checked, has ended "
                 "well; false: as soon as the workers are there");
  AddDuration(app, "--exit-timeout", s.exit_timeout, "on SIGTERM running jobs have so long to end");
  AddBytes(app, "--total-order-memory-limit", s.total_order_memory_limit_bytes,
           "memory for the coordinates of all jobs that run or wait; a job gets a quarter");
  app.add_option("--max-tokens", s.max_tokens, "of a job")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  AddLogging(app, s.log_level, s.log_format);
}

void AddWorkerSettings(CLI::App& app, WorkerSettings& s) {
  app.option_defaults()->always_capture_default();
  app.add_option("--coordinator", s.coordinator, "HOST:PORT of the coordinator's membership port")
      ->check([](const std::string& given) {
        // CLI11 names the flag itself.
        constexpr std::string_view kFlag = "--coordinator";
        const absl::Status status = wire::CheckServerAddress(kFlag, given);
        return status.ok() ? "" : std::string(status.message().substr(kFlag.size() + 2));
      });
  app.add_option("--join-token-file", s.join_token_file,
                 "a file with the token that the coordinator asks for; not given: none");
  app.add_option("--host", s.host, "address at which coordinator and other workers reach this one");
  app.add_option("--port", s.port, "0: a free port")->check(CLI::Range(0, kMaxPort));
  app.add_option("--http-host", s.http_host, "address to serve HTTP on; not given: as --host");
  app.add_option("--http-port", s.http_port,
                 "/livez and /metrics; 0: a free port, which the coordinator's /targets names")
      ->check(CLI::Range(0, kMaxPort));
  AddWorkerHttpSettings(app, s.http);
  app.add_option("--threads", s.threads, "of the CPU device; 0: all that the process may use")
      ->check(CLI::Range(0, kMaxThreads));
  AddCpuInstructions(app, s.cpu_instructions);
  AddDevice(app, s.device.device);
  AddGpu(app, s.device);
  AddBytes(app, "--memory-limit", s.memory_limit_bytes,
           "memory for jobs; 0: 80 % of the machine's, or the GPU's fraction");
  app.add_option("--memory-share", s.memory_share,
                 "of those 80 %, where several workers share the machine")
      ->check(Between(0.001, 1.0));
  app.add_option(
      "--data-root", s.data_root,
      "the coordinator's --data-root as this worker sees it: it reads and writes files of "
      "jobs there; not given: none");
  app.add_option("--model-dir", s.model_dir,
                 "a folder of models, each in a folder of its name; not given: none");
  AddBytes(app, "--model-memory", s.model_memory_bytes,
           "memory for the weights of models, beside that for jobs; those that were not used for "
           "longest make room");
  app.add_option(
      "--share-memory", s.share_memory,
      "true: takes shards in memory that a coordinator of this host offers, and shares the "
      "weights of models with the workers of this host; false: rows come by its stream");
  AddOpenTimeout(app, s.open_timeout);
  AddDuration(app, "--exit-timeout", s.exit_timeout,
              "on SIGTERM takes no more jobs, and those that run have so long to end");
  AddDuration(app, "--feed-timeout", s.feed_timeout,
              "a job of whose rows nothing is heard for so long ends here; longer than the "
              "coordinator's --idle-timeout");
  AddSecuritySettings(app, s.security);
  app.add_option("--ready-file", s.ready_file, "written as JSON when the worker is registered");
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

// In place of CLI11's reader, which passes over what it does not know.
class SettingsConfig : public CLI::Config {
 public:
  // ready_file: set to that of the file, also where another line is refused.
  SettingsConfig(std::vector<std::string> flags, std::string& ready_file)
      : flags_(std::move(flags)), ready_file_(ready_file) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string text{std::istreambuf_iterator<char>(input), {}};
    const auto lines = ParseSettingsFile(text);
    if (!lines.ok()) {
      throw CLI::ConfigError(absl::StrCat("--config: ", lines.status().message()));
    }
    for (const auto& [key, value] : *lines) {
      if (key == "ready-file") ready_file_ = value;
    }
    std::vector<CLI::ConfigItem> items;
    for (const auto& [key, value] : *lines) {
      if (std::find(flags_.begin(), flags_.end(), key) == flags_.end()) {
        throw CLI::ConfigError(
            absl::StrCat("--config: unknown key ", key, NearestNameHint(key, flags_)));
      }
      items.emplace_back().name = key;
      items.back().inputs = {value};
    }
    return items;
  }

  std::string to_config(const CLI::App* /*app*/, bool /*defaults*/, bool /*descriptions*/,
                        std::string /*prefix*/) const override {
    return "";  // the programs write no configuration
  }

 private:
  const std::vector<std::string> flags_;
  std::string& ready_file_;
};

constexpr int kExitBadSettings = 2;  // as the command line's

// Variables that a program of the service reads.
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

// Those of the environment stand before those of the command line, so that the latter win, and the
// configuration file fills in what neither gives.
std::vector<std::string> Arguments(const EnvironmentSettings& environment, int argc, char** argv) {
  std::vector<std::string> arguments;
  for (const auto& [flag, value] : environment.arguments) {
    arguments.push_back(absl::StrCat(flag, "=", value));
  }
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  return arguments;
}

// The ready file that the arguments name, whatever is wrong with the others.
std::string ReadyFileOf(const std::vector<std::string>& arguments) {
  constexpr std::string_view kFlag = "--ready-file", kWithValue = "--ready-file=";
  std::string path;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kFlag && i + 1 < arguments.size()) path = arguments[i + 1];
    if (arguments[i].starts_with(kWithValue)) path = arguments[i].substr(kWithValue.size());
  }
  return path;
}

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
  return absl::StrCat(text, "\nRun with --help for more information.");
}

template <typename Settings>
std::variant<Settings, int> Parse(CLI::App& app, Settings& settings, int argc, char** argv) {
  app.set_version_flag("--version", std::string(kVersion));
  app.set_config("--config", "", "a file of lines such as grpc-port=8001")
      ->check(SmallRegularFile());
  const std::vector<std::string> flags = Flags(app);
  std::string ready_file_of_config;
  app.config_formatter(std::make_shared<SettingsConfig>(flags, ready_file_of_config));
  app.footer(
      "Every setting can be given as a flag, as an environment variable (HILBERT_RING_ and the "
      "flag's "
      "name in capitals with underscores) or in the configuration file; the first that is given "
      "counts. A key that the file gives and this program does not know is an error.");
  for (CLI::Option* option : app.get_options()) {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    RequireExactValue(*option);
  }
  std::vector<std::string> variables = flags;
  variables.push_back("config");
  EnvironmentSettings environment = ReadEnvironment(variables, argc, argv);
  std::vector<std::string> arguments = Arguments(environment, argc, argv);
  const std::string ready_file = ReadyFileOf(arguments);
  const auto refuse = [&](const std::string& why) {
    // A start that fails leaves no file that says that the service is ready.
    const ReadyFile stale(ready_file.empty() ? ready_file_of_config : ready_file);
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(),
                 WithVariables(why, environment).c_str());
    return kExitBadSettings;
  };
  try {
    CheckHaveValues(app, arguments);
    std::ranges::reverse(arguments);  // as CLI11 takes them
    app.parse(std::move(arguments));
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
