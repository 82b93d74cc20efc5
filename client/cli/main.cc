#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/flags.h"
#include "client/cli/package_command.h"
#include "client/cli/usage.h"
#include "client/cpp/file_mapping.h"
#include "engine/base/end_process.h"
#include "engine/base/return_if_error.h"
#include "engine/base/standard_streams.h"
#include "wire/control_characters.h"
#include "wire/flag_values.h"
#include "wire/server_address.h"

namespace hilbert_ring::cli {
namespace {

constexpr char kTlsVariable[] = "HILBERT_RING_TLS";
constexpr char kKeepaliveVariable[] = "HILBERT_RING_KEEPALIVE_INTERVAL";

void AddAccess(CLI::App& app, client::Access& access, std::string& keepalive) {
  app.add_flag("--tls", access.tls, "use TLS with the service")->envname(kTlsVariable);
  AddFile(app, "--ca", access.ca,
          "certificates in PEM of the service's authorities (default: the system's)")
      ->envname("HILBERT_RING_CA");
  AddFile(app, "--cert", access.cert, "your certificate in PEM, if the service requires one")
      ->envname("HILBERT_RING_CERT");
  AddFile(app, "--key", access.key, "key of --cert in PEM")->envname("HILBERT_RING_KEY");
  app.add_option("--server-name", access.server_name,
                 "name in the service's certificate (default: the host of --server)")
      ->type_name("NAME")
      ->envname("HILBERT_RING_SERVER_NAME");
  AddFile(app, "--token-file", access.token_file, "file with your token")
      ->envname("HILBERT_RING_TOKEN_FILE");
  app.add_option("--keepalive-interval", keepalive,
                 "seconds of silence on an open call before a ping of the service, 10 to 86400 "
                 "(default: 10; a stream without end: 330)")
      ->type_name("SEC")
      ->envname(kKeepaliveVariable);
  app.add_flag("--insecure", access.insecure, "allow a token to another host without TLS");
}

// Used if the command line was not read completely.
OutputFormat FormatAskedFor(int argc, char** argv) {
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  return json ? OutputFormat::kJson : OutputFormat::kText;
}

// Reads a call's settings from the environment too. tls_error: of the environment; may be empty.
absl::Status ReadAccess(const std::string& keepalive, const std::string& tls_error,
                        GlobalOptions& global) {
  if (!tls_error.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--tls (", kTlsVariable, "): ", tls_error));
  }
  const char* const variable = std::getenv("HILBERT_RING_SERVER");
  const bool by_variable = variable != nullptr && global.server == variable;
  RETURN_IF_ERROR(
      wire::CheckServerAddress(by_variable ? "HILBERT_RING_SERVER" : "--server", global.server));
  if (const char* token = std::getenv("HILBERT_RING_TOKEN");
      token != nullptr && global.access.token_file.empty()) {
    global.access.token = token;
  }
  if (!keepalive.empty()) {
    double seconds = 0;
    if (const std::string wrong = wire::WrongNumber(keepalive);
        !wrong.empty() || !absl::SimpleAtod(keepalive, &seconds) || seconds <= 0) {
      return client::WrongKeepalive(wire::Legible(keepalive, 100));
    }
    global.access.keepalive_interval = absl::Seconds(seconds);
  }
  RETURN_IF_ERROR(client::ReadPipes(global.access));
  return client::CheckAccess(global.server, global.access);
}

int Main(int argc, char** argv) {
  // glibc would map and unmap the memory of every message. Page faults were 78 % of the time of a
  // stream over loopback (AMD EPYC Zen 4, gRPC 1.51).
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  // gRPC would log errors on stderr, between lines of JSON. The status has them.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // A file above the session's size limit is an error of the call instead of a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  client::CatchLostBytes();

  CLI::App app("Exact attention over long sequences, computed by a Hilbert Ring service.",
               "hilbert-ring");
  app.require_subcommand(1);
  app.fallthrough();
  GlobalOptions global;
  bool json = false;
  app.formatter(HelpFormatter());
  app.add_option("--server", global.server, "address of the coordinator")
      ->type_name("HOST:PORT")
      ->envname("HILBERT_RING_SERVER")
      ->capture_default_str();
  std::string keepalive;
  AddAccess(app, global.access, keepalive);
  app.add_flag("--json", json,
               "print the result as JSON, and each error as a line of JSON on stderr");
  app.set_version_flag("--version", "hilbert-ring " HILBERT_RING_VERSION);
  app.footer(
      "These options may stand before or after the command. A token is given in a file or in the "
      "environment (HILBERT_RING_TOKEN), never on the command line, which other users can read.\n"
      "The Python package runs bench, draw and slide, with the Python in HILBERT_RING_PYTHON, or "
      "python3.\n"
      "Exit codes: 0: done; 1: the service or the job failed, verify found a deviation, or "
      "standard output cannot be written; 2: command line, spec or files are wrong, and nothing "
      "was sent.");
  const std::vector<Subcommand> commands = AddSubcommands(app);
  AddPackageCommands(app);
  RequireExactValues(app);

  const int package_command = PackageCommandAt(app, argc, argv);
  std::vector<std::string> arguments(argv + std::min(1, argc),
                                     argv + std::min(package_command + 1, argc));
  const absl::Status values = CheckValues(app, arguments);
  if (!values.ok()) {
    std::erase_if(arguments, [](const std::string& word) { return word.find('=') != word.npos; });
  }
  // CLI11 throws at a wrong value, which matters only to calls of the service.
  const char* const tls_variable = std::getenv(kTlsVariable);
  const std::string tls = tls_variable == nullptr ? "" : tls_variable;
  const std::string wrong_tls = tls.empty() ? "" : wire::WrongTruthValue(tls);
  if (!wrong_tls.empty()) unsetenv(kTlsVariable);
  try {
    std::ranges::reverse(arguments);  // CLI11 takes them in this order
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    global.format = FormatAskedFor(argc, argv);
    if (global.format == OutputFormat::kJson &&
        dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
      return RunVersion(global);
    }
    if (error.get_exit_code() == 0) return app.exit(error);
    return BadInput(global, values.ok() ? UsageError(app, error) : values);
  }
  if (!values.ok()) return BadInput({.format = FormatAskedFor(argc, argv)}, values);
  if (!wrong_tls.empty()) setenv(kTlsVariable, tls.c_str(), 1);
  if (json) global.format = OutputFormat::kJson;
  for (const std::string& warning : VariableWarnings(app, environ)) PrintWarning(global, warning);
  if (package_command < argc) {
    return RunPackageCommand(app, global, {argv + package_command, argv + argc});
  }
  const auto command =
      std::ranges::find_if(commands, [](const Subcommand& one) { return one.app->parsed(); });
  if (command->calls()) {
    std::string tls_error = app.count("--tls") == 0 ? wrong_tls : "";
    const absl::Status status = ReadAccess(keepalive, tls_error, global);
    if (!status.ok()) return BadInput(global, status);
  }
  return command->run(global);
}

// Detects output that could not be written, for example to a full disk.
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
  BadInput({.format = FormatAskedFor(argc, argv)}, written);
  return std::max(code, kExitFailed);
}

}  // namespace
}  // namespace hilbert_ring::cli

HILBERT_RING_HOLDS_STANDARD_STREAMS

int main(int argc, char** argv) {
  hilbert_ring::EndProcess(hilbert_ring::cli::MainWithOutput(argc, argv));
}
