// The command line of Hilbert Ring.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/encode_flags.h"
#include "client/cli/failure.h"
#include "client/cli/job_run.h"
#include "client/cli/package_command.h"
#include "client/cli/usage.h"
#include "client/cpp/file_mapping.h"
#include "engine/base/end_process.h"
#include "engine/base/standard_streams.h"
#include "engine/plan/plan.h"
#include "nlohmann/json.hpp"
#include "wire/control_characters.h"
#include "wire/flag_values.h"
#include "wire/server_address.h"

namespace hilbert_ring::cli {
namespace {

constexpr char kTlsVariable[] = "HILBERT_RING_TLS";
constexpr char kKeepaliveVariable[] = "HILBERT_RING_KEEPALIVE_INTERVAL";

// An integer of 1 to `most`; its option's text says so where it matters.
template <typename Integer>
CLI::Validator From1To(Integer most) {
  return CLI::Range(Integer{1}, most).description("");
}

// keepalive: the interval as it was given.
void AddAccess(CLI::App& app, client::Access& access, std::string& keepalive) {
  app.add_flag("--tls", access.tls, "speak TLS with the service")->envname(kTlsVariable);
  const auto file = [&app](const char* flag, std::string& path, const char* variable,
                           const char* help) {
    app.add_option(flag, path, help)->type_name("FILE")->envname(variable);
  };
  file("--ca", access.ca, "HILBERT_RING_CA",
       "certificates in PEM that the service's is checked with; not given: the system's");
  file("--cert", access.cert, "HILBERT_RING_CERT",
       "your certificate in PEM, where one is asked for");
  file("--key", access.key, "HILBERT_RING_KEY", "its key in PEM");
  app.add_option("--server-name", access.server_name,
                 "name in the service's certificate; not given: the host of --server")
      ->type_name("NAME")
      ->envname("HILBERT_RING_SERVER_NAME");
  file("--token-file", access.token_file, "HILBERT_RING_TOKEN_FILE", "your token");
  app.add_option("--keepalive-interval", keepalive,
                 "seconds of silence after which the service of an open call is pinged, 10 to "
                 "86400; not given: 10, of a stream without end 330")
      ->type_name("SEC")
      ->envname(kKeepaliveVariable);
  app.add_flag("--insecure", access.insecure, "send a token to another host without TLS");
}

// Where not everything of the command line was read.
OutputFormat FormatAskedFor(int argc, char** argv) {
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  return json ? OutputFormat::kJson : OutputFormat::kText;
}

int RunVersion(const GlobalOptions& global) {
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", nlohmann::json({{"version", HILBERT_RING_VERSION}}).dump().c_str());
  } else {
    std::printf("hilbert-ring %s\n", HILBERT_RING_VERSION);
  }
  return kExitOk;
}

int Main(int argc, char** argv) {
  // glibc would map and unmap the memory of every message: page faults were 78 % of the time of a
  // stream over loopback (AMD EPYC Zen 4, gRPC 1.51).
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  // gRPC would say on standard error what the status says, between lines of JSON.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // A file above the limit of the user's session is an error of the call, not the end of the
  // process.
  std::signal(SIGXFSZ, SIG_IGN);
  client::CatchLostBytes();

  CLI::App app("Exact attention over long sequences, computed by a Hilbert Ring service.",
               "hilbert-ring");
  app.require_subcommand(1);
  app.fallthrough();
  GlobalOptions global;
  bool json = false;
  app.formatter(HelpFormatter());
  app.add_option("--server", global.server, "of the coordinator")
      ->type_name("HOST:PORT")
      ->envname("HILBERT_RING_SERVER")
      ->capture_default_str();
  std::string keepalive;
  AddAccess(app, global.access, keepalive);
  app.add_flag("--json", json, "print the result as JSON, and errors, a line each, on stderr");
  app.set_version_flag("--version", "hilbert-ring " HILBERT_RING_VERSION);
  app.footer(
      "These options stand before or behind the command. A token is given in a file or in the "
      "environment (HILBERT_RING_TOKEN), never on the command line, which others see.\n"
      "bench, draw and slide are run by the Python package, with the Python that "
      "HILBERT_RING_PYTHON "
      "names, "
      "or python3.\n"
      "Exit codes: 0: done; 1: the service or the job failed, verify found a deviation, or what is "
      "printed found no room; 2: "
      "command line, spec or files are wrong, and nothing was sent.");
  const auto file = [](CLI::App* command, const char* flag, std::string& path, const char* help) {
    return command->add_option(flag, path, help)->type_name("FILE");
  };

  AttendCommand attend;
  CLI::App* attend_app =
      app.add_subcommand("attend", "run a job on .npy files, or on a stream of rows");
  AddJobFlags(*attend_app, attend.job, Tensors::kOptional);
  const CLI::Validator path(
      [](const std::string& text) { return text.empty() ? "is empty, expected a path" : ""; }, "");
  file(attend_app, "--out", attend.out, ".npy to write: [tokens, heads, value_dim]")
      ->required()
      ->check(path);
  file(attend_app, "--lse", attend.lse,
       ".npy to write: [tokens, heads], logarithms of the softmax denominators");
  AddStreamFlags(*attend_app, attend.stream);
  AddReferenceFlags(*attend_app, attend.reference);
  AddCallFlags(*attend_app, attend.call);

  ManyCommand many;
  CLI::App* many_app = app.add_subcommand("attend-many", "run many small jobs, with few calls");
  many_app
      ->add_option(
          "jobs", many.jobs,
          "lines of JSON, a job each (-: from stdin): paths q, k, v and out, and, where it "
          "has them, coords, lse, job_id, and spec, an object whose fields replace those "
          "that the flags give all jobs")
      ->type_name("FILE")
      ->required();
  AddSpecFlags(*many_app, many.job);
  AddAttemptFlags(*many_app, many.call);

  EncodeCommand encode;
  CLI::App* encode_app =
      app.add_subcommand("encode", "embeddings of slides: tiles through all layers of a model");
  AddEncodeFlags(*encode_app, encode);
  CLI::App* models_app = app.add_subcommand("models", "list the models of encoders");

  PlanCommand plan;
  CLI::App* plan_app = app.add_subcommand("plan", "explain a job without running it");
  AddJobFlags(*plan_app, plan.job, Tensors::kOptional);
  plan_app
      ->add_option("--workers", plan.workers,
                   absl::StrCat("number of workers, 1 to ", kMaxWorkers,
                                "; as many as the service has when not given (--local: 1)"))
      ->type_name("N")
      ->check(From1To(kMaxWorkers));
  plan_app->add_flag("--local", plan.local, "plan in this process, without a service");

  CLI::App* status_app = app.add_subcommand("status", "show workers, memory, rings and jobs");

  CLI::App* jobs_app = app.add_subcommand("jobs", "list your jobs that wait or run");
  CancelCommand cancel;
  CLI::App* cancel_app = app.add_subcommand("cancel", "end one of your jobs");
  cancel_app->add_option("job", cancel.job_id, "its id, as jobs prints it")
      ->type_name("ID")
      ->required();
  cancel_app
      ->add_option("--caller", cancel.caller,
                   "whose job, as jobs prints it; for administrators; not given: yours")
      ->type_name("NAME");

  VerifyCommand verify;
  CLI::App* verify_app =
      app.add_subcommand("verify", "compute a sample of rows again in float64 and compare");
  AddJobFlags(*verify_app, verify.job, Tensors::kRequired);
  file(verify_app, "--out", verify.out, ".npy [tokens, heads, value_dim] to check")
      ->required()
      ->check(path);
  file(verify_app, "--lse", verify.lse, ".npy [tokens, heads] to check");
  verify_app->add_option("--rows", verify.rows, "rows to compute again")
      ->type_name("N")
      ->check(From1To(std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  verify_app->add_option("--seed", verify.seed, "of the sample")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()).description(""))
      ->capture_default_str();

  CLI::App* version_app = app.add_subcommand("version", "print the version");

  std::string shell;
  CLI::App* completion_app =
      app.add_subcommand("completion", "print a script that completes these commands in a shell");
  completion_app->add_option("shell", shell)->type_name("bash|zsh|fish")->required();

  AddPackageCommands(app);
  RequireExactValues(app);

  const int package_command = PackageCommandAt(app, argc, argv);
  std::vector<std::string> arguments(argv + std::min(1, argc),
                                     argv + std::min(package_command + 1, argc));
  const absl::Status values = CheckValues(app, arguments);
  if (!values.ok()) {  // the help is shown all the same
    std::erase_if(arguments, [](const std::string& word) { return word.find('=') != word.npos; });
  }
  // CLI11 throws at a wrong value, which concerns calls of the service alone.
  const char* const tls_variable = std::getenv(kTlsVariable);
  const std::string tls = tls_variable == nullptr ? "" : tls_variable;
  const std::string wrong_tls = tls.empty() ? "" : wire::WrongTruthValue(tls);
  if (!wrong_tls.empty()) unsetenv(kTlsVariable);
  try {
    std::ranges::reverse(arguments);  // as CLI11 takes them
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    global.format = FormatAskedFor(argc, argv);
    if (global.format == OutputFormat::kJson &&
        dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
      return RunVersion(global);
    }
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return BadInput(global, values.ok() ? UsageError(app, error) : values);
  }
  if (!values.ok()) return BadInput({.format = FormatAskedFor(argc, argv)}, values);
  if (!wrong_tls.empty()) setenv(kTlsVariable, tls.c_str(), 1);
  if (json) global.format = OutputFormat::kJson;
  for (const std::string& warning : VariableWarnings(app, environ)) PrintWarning(global, warning);
  if (package_command < argc) {
    return RunPackageCommand(app, global, {argv + package_command, argv + argc});
  }
  const bool calls = attend_app->parsed() || many_app->parsed() || encode_app->parsed() ||
                     models_app->parsed() || status_app->parsed() || jobs_app->parsed() ||
                     cancel_app->parsed() || (plan_app->parsed() && !plan.local);
  const char* const variable = std::getenv("HILBERT_RING_SERVER");
  const bool by_variable = variable != nullptr && global.server == variable;
  if (calls && !wrong_tls.empty() && app.count("--tls") == 0) {
    return BadInput(global, absl::InvalidArgumentError(
                                absl::StrCat("--tls (", kTlsVariable, "): ", wrong_tls)));
  }
  if (absl::Status status =
          wire::CheckServerAddress(by_variable ? "HILBERT_RING_SERVER" : "--server", global.server);
      calls && !status.ok()) {
    return BadInput(global, status);
  }
  if (const char* token = std::getenv("HILBERT_RING_TOKEN");
      token != nullptr && global.access.token_file.empty()) {
    global.access.token = token;
  }
  if (calls && !keepalive.empty()) {
    double seconds = 0;
    if (const std::string wrong = wire::WrongNumber(keepalive);
        !wrong.empty() || !absl::SimpleAtod(keepalive, &seconds) || seconds <= 0) {
      return BadInput(global, client::WrongKeepalive(wire::Legible(keepalive, 100)));
    }
    global.access.keepalive_interval = absl::Seconds(seconds);
  }
  if (calls) {
    absl::Status status = client::ReadPipes(global.access);
    if (status.ok()) status = client::CheckAccess(global.server, global.access);
    if (!status.ok()) return BadInput(global, status);
  }
  if (attend_app->parsed()) return RunAttend(global, attend);
  if (many_app->parsed()) return RunAttendMany(global, many);
  if (encode_app->parsed()) return RunEncode(global, encode);
  if (models_app->parsed()) return RunModels(global);
  if (plan_app->parsed()) return RunPlan(global, plan);
  if (status_app->parsed()) return RunStatus(global);
  if (jobs_app->parsed()) return RunJobs(global);
  if (cancel_app->parsed()) return RunCancel(global, cancel);
  if (verify_app->parsed()) return RunVerify(global, verify);
  if (version_app->parsed()) return RunVersion(global);
  const absl::StatusOr<std::string> script = CompletionScript(app, shell);
  if (!script.ok()) return BadInput(global, script.status());
  std::fputs(script->c_str(), stdout);
  return kExitOk;
}

// What was printed may have found no room.
absl::Status WriteOutput() {
  const bool failed = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) {
    return absl::ErrnoToStatus(errno, "standard output: cannot write");
  }
  return failed ? absl::UnavailableError("standard output: cannot write all") : absl::OkStatus();
}

int MainWithOutput(int argc, char** argv) {
  const int code = Main(argc, argv);
  const absl::Status written = WriteOutput();
  if (written.ok()) return code;
  return std::max(code, NotPrinted({.format = FormatAskedFor(argc, argv)}, written));
}

}  // namespace
}  // namespace hilbert_ring::cli

HILBERT_RING_HOLDS_STANDARD_STREAMS

int main(int argc, char** argv) {
  hilbert_ring::EndProcess(hilbert_ring::cli::MainWithOutput(argc, argv));
}
