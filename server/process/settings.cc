#include "server/process/settings.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/spec/nearest_name.h"
#include "server/process/version.h"
#include "wire/server_address.h"

namespace hilbert_ring::server {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxWorkersOfAJob = 4096;
constexpr int kMaxThreads = 4096;
constexpr int kMaxSpawned = 256;

std::string Variable(const std::string& flag) {
  std::string name = "HILBERT_RING_";
  for (const char c : flag) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

void AddDuration(CLI::App& app, const std::string& flag, Milliseconds& value,
                 const std::string& help) {
  const auto seconds = static_cast<double>(value.count()) / 1000;
  app.add_option_function<double>(
         flag, [&value](double given) { value = Milliseconds(static_cast<int64_t>(given * 1000)); },
         help + ", in seconds")
      ->check(CLI::Range(0.001, 1e9))
      ->default_str(CLI::detail::to_string(seconds));
}

CLI::Option* AddBytes(CLI::App& app, const std::string& flag, int64_t& value,
                      const std::string& help) {
  return app
      .add_option_function<uint64_t>(
          flag,
          [&value](uint64_t given) {
            value = static_cast<int64_t>(std::min<uint64_t>(given, uint64_t{1} << 62));
          },
          help + " (bytes, or with a suffix: 512MiB, 16GiB)")
      ->transform(CLI::AsSizeValue(false));
}

// Whether the machine runs what is named is the worker's device to say.
CLI::Option* AddCpuInstructions(CLI::App& app, std::string& value) {
  return app
      .add_option("--cpu-instructions", value,
                  "instruction set of the workers' kernels; not given: the best of the machine")
      ->check(CLI::IsMember(
          {"portable", "ssse3", "sse4", "avx2", "avx512", "avx512-bf16", "neon", "bf16-emulated"}));
}

// Whether the GPU is there is the worker's device to say.
void AddDevice(CLI::App& app, DeviceSettings& device) {
  app.add_option(
         "--device", device.device,
         "of the workers: auto (a GPU where there is one, else the CPU; spawned workers are "
         "spread over the GPUs), auto:N (that GPU), cpu, or cuda:N")
      ->check([](const std::string& given) {
        const bool known = given == "auto" || given == "cpu" || GpuOrdinal(given).has_value();
        return known ? std::string() : given + " is not auto, auto:N, cpu or cuda:N";
      });
  app.add_option("--gpu-memory-fraction", device.gpu_memory_fraction,
                 "of a GPU's memory, for the jobs of its workers")
      ->check(CLI::Range(0.01, 1.0));
  app.add_option("--attention-kernel", device.attention_kernel,
                 "of a GPU: cudnn, native (our own), or auto (cudnn where it was faster)")
      ->check(CLI::IsMember({"auto", "cudnn", "native"}));
  app.add_option("--gpu-exchange-blocks", device.gpu_exchange_blocks,
                 "most blocks of threads, each a multiprocessor that compute goes without, that "
                 "NCCL exchanges with (its CTAs); 0: as it chooses")
      ->check(CLI::Range(0, 64));
}

// What the streams of a host may be, at coordinator and worker.
void AddCallLimits(CLI::App& app, int& calls_per_peer, Milliseconds& open_timeout) {
  app.add_option("--max-calls-per-peer", calls_per_peer, "streams that one host may have open")
      ->check(CLI::Range(1, 100'000));
  AddDuration(app, "--open-timeout", open_timeout,
              "a stream that has said nothing for so long is ended");
}

void AddLogging(CLI::App& app, std::string& level, std::string& format) {
  app.add_option("--log-level", level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  app.add_option("--log-format", format, "text, or json: an object a line")
      ->check(CLI::IsMember({"text", "json"}));
}

// Arguments of the environment, so that they come before those of the command line, which win, and
// after the configuration file, which fills in what neither gives.
std::vector<std::string> Arguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help" ||
        option->get_lnames().front() == "version") {
      continue;
    }
    const std::string& flag = option->get_lnames().front();
    const char* value = std::getenv(Variable(flag).c_str());
    if (value != nullptr && *value != '\0') arguments.push_back("--" + flag + "=" + value);
  }
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  return arguments;
}

void AddCoordinatorSettings(CLI::App& app, CoordinatorSettings& s) {
  app.option_defaults()->always_capture_default();
  app.add_option("--grpc-host", s.grpc_host, "address to serve gRPC on");
  app.add_option("--grpc-port", s.grpc_port, "0: a free port")->check(CLI::Range(0, kMaxPort));
  app.add_option("--http-host", s.http_host, "address to serve HTTP on");
  app.add_option("--http-port", s.http_port, "/livez, /readyz and /metrics; 0: a free port")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option("--membership-host", s.membership_host,
                 "address to take workers on; not given: 127.0.0.1 where workers are spawned, else "
                 "as --grpc-host");
  app.add_option("--membership-port", s.membership_port,
                 "workers register here, never on the gRPC port; 0: a free port")
      ->check(CLI::Range(0, kMaxPort));
  app.add_option("--join-token-file", s.join_token_file,
                 "a file with the token that workers must have to register, of at least 16 "
                 "characters; not given: where workers are spawned no others are taken, else "
                 "whoever reaches the membership port is");
  app.add_option("--ready-file", s.ready_file, "written as JSON when the service is ready");
  app.add_option("--spawn-workers", s.spawn_workers,
                 "local workers to start; 0: workers started elsewhere register themselves")
      ->check(CLI::Range(0, kMaxSpawned));
  app.add_option("--min-workers", s.min_workers, "workers to be ready with, when none is spawned")
      ->check(CLI::Range(1, kMaxThreads));
  app.add_option("--worker-threads", s.worker_threads,
                 "of each spawned worker; 0: its share of the machine's")
      ->check(CLI::Range(0, kMaxThreads));
  AddCpuInstructions(app, s.cpu_instructions);
  AddDevice(app, s.device);
  AddBytes(app, "--memory-limit", s.memory_limit_bytes,
           "memory for jobs of each spawned worker; 0: its share of 80 % of the machine's");
  AddDuration(app, "--worker-timeout", s.worker_timeout,
              "a worker that is not heard of for so long is lost");
  app.add_option("--share-memory", s.share_memory,
                 "true: shards of workers on this host lie in memory that both processes map; "
                 "false: rows are sent to them");
  app.add_option("--job-workers", s.job_workers,
                 "of a job, or all if there are fewer; 0: as many as end it first")
      ->check(CLI::Range(0, kMaxWorkersOfAJob));
  app.add_option("--max-queue", s.max_queue, "jobs that may wait")->check(CLI::Range(0, 100'000));
  AddCallLimits(app, s.max_calls_per_peer, s.open_timeout);
  app.add_option("--max-connections-per-peer", s.max_connections_per_peer,
                 "connections that one host may have open; further ones are closed")
      ->check(CLI::Range(1, 1'000'000));
  AddDuration(app, "--connection-idle-timeout", s.connection_idle_timeout,
              "a caller's connection that has no call for so long is closed");
  AddBytes(app, "--waiting-memory", s.waiting_memory_bytes,
           "memory for all calls that are not admitted: at most 5 MiB of one until its first "
           "message is there, then that message and 1 MiB");
  app.add_option("--max-plans", s.max_plans,
                 "plans that are made at once for jobs, and as many for callers that ask for one; "
                 "further jobs wait, further callers are refused")
      ->check(CLI::Range(1, 4096));
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
  app.add_option("--max-retries", s.max_retries, "of a job whose workers are lost")
      ->check(CLI::Range(0, 1000));
  AddDuration(app, "--recovery-timeout", s.recovery_timeout,
              "a job whose workers are lost waits so long for enough others");
  AddBytes(app, "--copy-memory", s.copy_memory_bytes,
           "memory for copies of rows sent to workers of other hosts, from which a lost worker's "
           "part is computed anew; beyond it clients are asked to send rows again");
  app.add_option(
         "--check-rows", s.check_rows,
         "rows of each job that are computed again in float64; a mismatch fails the job and "
         "its worker gets no more")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--warm-up", s.warm_up,
                 "true: ready once a first job over all workers, whose rows are checked, has ended "
                 "well; false: as soon as the workers are there");
  AddDuration(app, "--exit-timeout", s.exit_timeout, "on SIGTERM running jobs have so long to end");
  AddBytes(app, "--order-memory-limit", s.order_memory_limit_bytes,
           "memory for the coordinates of a job");
  AddBytes(app, "--total-order-memory-limit", s.total_order_memory_limit_bytes,
           "memory for the coordinates of all jobs that run or wait");
  AddBytes(app, "--order-cache", s.order_cache_bytes, "memory for orders that later jobs reuse");
  app.add_option("--max-tokens", s.max_tokens, "of a job")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--max-heads", s.max_heads, "of a job")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--max-branches", s.max_branches, "of a job")
      ->check(CLI::Range(int64_t{1}, int64_t{64}));
  app.add_option("--max-sequences", s.max_sequences, "of a job")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
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
  app.add_option("--threads", s.threads, "of the CPU device; 0: all that the process may use")
      ->check(CLI::Range(0, kMaxThreads));
  AddCpuInstructions(app, s.cpu_instructions);
  AddDevice(app, s.device);
  AddBytes(app, "--memory-limit", s.memory_limit_bytes,
           "memory for jobs; 0: 80 % of the machine's, or the GPU's fraction");
  app.add_option("--memory-share", s.memory_share,
                 "of those 80 %, where several workers share the machine")
      ->check(CLI::Range(0.001, 1.0));
  app.add_option("--share-memory", s.share_memory,
                 "true: takes shards in memory that a coordinator of this host offers; false: rows "
                 "come by its stream");
  AddCallLimits(app, s.max_calls_per_peer, s.open_timeout);
  AddDuration(app, "--exit-timeout", s.exit_timeout,
              "on SIGTERM takes no more jobs, and those that run have so long to end");
  AddDuration(app, "--feed-timeout", s.feed_timeout,
              "a job of whose rows nothing is heard for so long ends here; longer than the "
              "coordinator's --idle-timeout");
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

// CLI11 passes over what it does not know.
class CheckedConfig : public CLI::ConfigTOML {
 public:
  explicit CheckedConfig(std::vector<std::string> flags) : flags_(std::move(flags)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
    std::set<std::string> given;
    for (const CLI::ConfigItem& item : items) {
      const std::string name = item.fullname();
      if (std::find(flags_.begin(), flags_.end(), name) == flags_.end()) {
        throw CLI::ConfigError(
            absl::StrCat("--config: unknown key ", name, NearestNameHint(name, flags_)));
      }
      if (!given.insert(name).second || item.inputs.size() > 1) {
        throw CLI::ConfigError(absl::StrCat("--config: key ", name, " has several values"));
      }
    }
    return items;
  }

 private:
  const std::vector<std::string> flags_;
};

constexpr char kPrefix[] = "HILBERT_RING_";
constexpr int kExitBadSettings = 2;  // as the command line's

// Variables that no program of the service reads, which a slip has made or an older version left.
std::vector<std::string> UnknownVariables() {
  CoordinatorSettings coordinator;
  WorkerSettings worker;
  CLI::App coordinator_app, worker_app;
  AddCoordinatorSettings(coordinator_app, coordinator);
  AddWorkerSettings(worker_app, worker);
  std::vector<std::string> known = {absl::StrCat(kPrefix, "CONFIG"),
                                    absl::StrCat(kPrefix, "SERVER")};  // the command line's
  for (const CLI::App* app : {&coordinator_app, &worker_app}) {
    for (const std::string& flag : Flags(*app)) known.push_back(Variable(flag));
  }
  std::vector<std::string> warnings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string name(variable.substr(0, variable.find('=')));
    if (!name.starts_with(kPrefix) || std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    warnings.push_back(absl::StrCat("environment variable ", name, " is not one of the settings",
                                    NearestNameHint(name, known)));
  }
  return warnings;
}

int Refuse(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& argument : app.remaining()) {
      const std::string flag = argument.substr(0, argument.find('='));
      std::vector<std::string> flags;
      for (const std::string& name : Flags(app)) flags.push_back("--" + name);
      absl::StrAppend(&text, NearestNameHint(flag, flags));
    }
  }
  std::fprintf(stderr, "%s: %s\nRun with --help for more information.\n", app.get_name().c_str(),
               text.c_str());
  return kExitBadSettings;
}

// Writing the ready file would replace what the process was started with.
template <typename Settings>
std::string ReadyFileClash(const CLI::App& app, const Settings& settings) {
  const CLI::Option& config = *app.get_config_ptr();
  const std::pair<const char*, std::string> inputs[] = {
      {"--config", config.count() > 0 ? config.as<std::string>() : ""},
      {"--join-token-file", settings.join_token_file}};
  for (const auto& [flag, path] : inputs) {
    std::error_code absent;  // of either: they are not one file
    if (path.empty() || !std::filesystem::equivalent(settings.ready_file, path, absent)) continue;
    return absl::StrCat("--ready-file ", settings.ready_file, " is the same file as ", flag, " ",
                        path, "; nothing was written");
  }
  return "";
}

template <typename Settings>
std::variant<Settings, int> Parse(CLI::App& app, Settings& settings, int argc, char** argv) {
  app.set_version_flag("--version", std::string(kVersion));
  app.set_config("--config", "", "a file of lines such as grpc-port=8001");
  app.config_formatter(std::make_shared<CheckedConfig>(Flags(app)));
  app.footer(
      "Every setting can be given as a flag, as an environment variable (HILBERT_RING_ and the "
      "flag's "
      "name in capitals with underscores) or in the configuration file; the first that is given "
      "counts. A key that the file gives and this program does not know is an error.");
  for (CLI::Option* option : app.get_options()) {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  try {
    app.parse(Arguments(app, argc, argv));
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : Refuse(app, error);
  }
  if (const std::string clash = ReadyFileClash(app, settings); !clash.empty()) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), clash.c_str());
    return kExitBadSettings;
  }
  settings.warnings = UnknownVariables();
  return settings;
}

}  // namespace

std::optional<int> GpuOrdinal(const std::string& device) {
  if (!device.starts_with("cuda:") && !device.starts_with("auto:")) return std::nullopt;
  int ordinal = -1;
  const char* const end = device.data() + device.size();
  const auto parsed = std::from_chars(device.data() + device.find(':') + 1, end, ordinal);
  if (parsed.ec != std::errc() || parsed.ptr != end || ordinal < 0) return std::nullopt;
  return ordinal;
}

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
