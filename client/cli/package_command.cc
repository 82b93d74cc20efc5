#include "client/cli/package_command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/cli/failure.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::cli {
namespace {

struct PackageCommand {
  const char* name;
  const char* help;
  const char* kind;
  const char* values;
  const char* options;  // that completion adds to each kind; the package parses them
};

constexpr PackageCommand kCommands[] = {
    {"bench", "measure a service (by the Python package)", "benchmark",
     "sweep|dilation|ablate|project|order|load",
     "--workers N, --rounds N, --out FOLDER, --first N, --last N, --memory-limit N, --tokens N, "
     "--dilations N, --segment N, --scale N, --project-tokens N, --project-workers N, "
     "--worker-flops FLOP/S, --worker-memory BYTES, --link BYTES/S, --grid ROWS COLS, --causal, "
     "--row-bytes N, --callers N, --seconds N, --deadline N, --of-capacity N"},
    {"draw", "draw a job as SVG (by the Python package)", "picture", "pattern|order|plan|trace",
     "--spec FILE, --tokens N, --key-tokens N, --heads N, --kv-heads N, --head-dim N, "
     "--value-dim N, --dtype float32|bfloat16|float16, --segments N,..., --dilations N,..., "
     "--sequence-lengths N,..., --key-sequence-lengths N,..., --align end|start, --grid N,..., "
     "--mixing head_groups|lse, --causal, "
     "--curve hilbert|morton|auto|none, --scope qkv|kv, --ordering-window N, --window LEFT,RIGHT, "
     "--workers N, --out FILE"},
    {"slide", "write a slide's file as .npy files (by the Python package)", "file", "FILE",
     "--tiles FILE, --coords FILE, --layout atlaspatch|trident|raw2features|stamp|slide2vec|clam, "
     "--features NAME, --coordinates NAME, --patches FILE, --coord-scale NUMBER, --coords-are "
     "tiles|pixels, "
     "--tile-size N, --model NAME"}};

constexpr char kPython[] = "HILBERT_RING_PYTHON";
constexpr char kModule[] = "hilbert_ring";
// Python's -c and -m import from the current folder, for example a user's json.py. Its -P prevents
// that only from 3.11 on; -I would ignore PYTHONPATH.
constexpr char kNotTheCurrentFolder[] = "import sys; sys.path[:] = filter(None, sys.path); ";
constexpr absl::Duration kImportTime = absl::Seconds(60);
constexpr size_t kMostErrorBytes = 1 << 16;

constexpr const char* kPassedOn[][2] = {{"--server", "HILBERT_RING_SERVER"},
                                        {"--tls", "HILBERT_RING_TLS"},
                                        {"--ca", "HILBERT_RING_CA"},
                                        {"--cert", "HILBERT_RING_CERT"},
                                        {"--key", "HILBERT_RING_KEY"},
                                        {"--server-name", "HILBERT_RING_SERVER_NAME"},
                                        {"--token-file", "HILBERT_RING_TOKEN_FILE"},
                                        {"--keepalive-interval", "HILBERT_RING_KEEPALIVE_INTERVAL"},
                                        {"--insecure", "HILBERT_RING_INSECURE"}};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Drops empty elements, which Python reads as the current folder. package: may be empty.
void SetPythonPath(const std::string& package) {
  std::vector<std::string> folders = absl::StrSplit(Variable("PYTHONPATH"), ':', absl::SkipEmpty());
  if (!package.empty()) folders.push_back(package);
  setenv("PYTHONPATH", absl::StrJoin(folders, ":").c_str(), 1);
  if (folders.empty()) unsetenv("PYTHONPATH");
}

// Makes programs of the build tree find its package, and the package find the programs.
void NameOwnFolders() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return SetPythonPath("");
  const std::filesystem::path programs = own.parent_path();
  if (std::filesystem::exists(programs / "hilbert-ring-coordinator", error)) {
    setenv("HILBERT_RING_BIN_DIR", programs.c_str(), 0);
  }
  const std::filesystem::path package = programs.parent_path() / "python";
  const bool there = std::filesystem::exists(package / kModule / "__main__.py", error);
  SetPythonPath(there ? package.string() : "");
}

std::vector<std::string> Interpreters() {
  const std::string named = Variable(kPython);
  if (!named.empty()) return {named};
  return {"python3", "/usr/bin/python3"};
}

// Reads until the pipe's end or `until`; keeps at most kMostErrorBytes.
std::string ReadAll(int pipe, absl::Time until) {
  std::string all;
  char part[4096];
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(until - client::SteadyNow());
    pollfd ready = {.fd = pipe, .events = POLLIN, .revents = 0};
    const int found = left > 0 ? poll(&ready, 1, static_cast<int>(left)) : 0;
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return absl::StrCat(all, "\nimporting took longer than 60 s");
    const ssize_t bytes = read(pipe, part, sizeof(part));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return all;
    if (all.size() < kMostErrorBytes) all.append(part, static_cast<size_t>(bytes));
  }
}

std::string LastLine(std::string text) {
  absl::StripTrailingAsciiWhitespace(&text);
  return text.substr(text.rfind('\n') + 1);
}

std::vector<char*> PointersTo(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string WhyNot(const std::string& interpreter) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::strerror(errno);
  const Descriptor output(ends[0]);
  pid_t child = 0;
  const int failed = Spawn(
      interpreter,
      {interpreter, "-c", absl::StrCat(kNotTheCurrentFolder, "import ", kModule, ".__main__")},
      ends[1], child);
  close(ends[1]);
  if (failed != 0) return std::strerror(failed);
  const std::string said = ReadAll(output.number(), client::SteadyNow() + kImportTime);
  kill(child, SIGKILL);  // the output has ended: the import is done, or hangs
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  const std::string last = LastLine(said);
  return last.empty() ? "it ends at once" : last;
}

}  // namespace

int Spawn(const std::string& program, std::vector<std::string> words, int errors, pid_t& child) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  const int failed =
      posix_spawnp(&child, program.c_str(), &actions, nullptr, PointersTo(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

void AddPackageCommands(CLI::App& app) {
  for (const PackageCommand& command : kCommands) {
    CLI::App* added = app.add_subcommand(command.name, command.help);
    added->set_help_flag();
    added->add_option(command.kind)->type_name(command.values);
    for (const auto option : absl::StrSplit(command.options, ", ")) {
      const std::pair<std::string, std::string> words =
          absl::StrSplit(option, absl::MaxSplits(' ', 1));
      CLI::Option* const known = added->add_option(words.first);
      if (words.second.empty()) {
        known->expected(0);
      } else {
        known->expected(1)->type_name(words.second);
      }
    }
  }
}

int PackageCommandAt(const CLI::App& app, int argc, char** argv) {
  for (int at = 1; at < argc; ++at) {
    const std::string_view word = argv[at];
    if (word.starts_with("-")) {
      const CLI::Option* option = app.get_option_no_throw(std::string(word));
      if (option != nullptr && option->get_items_expected_min() > 0) ++at;
      continue;
    }
    const bool ours = std::any_of(std::begin(kCommands), std::end(kCommands),
                                  [word](const PackageCommand& one) { return word == one.name; });
    return ours ? at : argc;
  }
  return argc;
}

int RunPackageCommand(const CLI::App& app, const GlobalOptions& global,
                      const std::vector<std::string>& words) {
  for (const auto& [flag, variable] : kPassedOn) {
    const CLI::Option* option = app.get_option_no_throw(flag);
    if (option != nullptr && option->count() > 0) {
      setenv(variable, option->as<std::string>().c_str(), 1);
    }
  }
  NameOwnFolders();
  std::vector<std::string> reasons;
  for (const std::string& interpreter : Interpreters()) {
    std::string reason = WhyNot(interpreter);
    if (reason.empty()) {
      std::vector<std::string> line = {
          interpreter, "-c",
          absl::StrCat(kNotTheCurrentFolder, "import runpy; runpy.run_module('", kModule,
                       "', run_name='__main__', alter_sys=True)")};
      line.insert(line.end(), words.begin(), words.end());
      // The command line has already read a --json before the command.
      const bool behind = std::ranges::find(words, "--json") != words.end();
      if (global.format == OutputFormat::kJson && !behind) line.push_back("--json");
      std::signal(SIGXFSZ, SIG_DFL);
      execvp(interpreter.c_str(), PointersTo(line).data());
      reason = std::strerror(errno);
    }
    reasons.push_back(absl::StrCat(interpreter, ": ", reason));
  }
  return BadInput(global,
                  absl::FailedPreconditionError(absl::StrCat(
                      words.front(), " is a command of the Python package ", kModule,
                      ", which cannot be imported (", absl::StrJoin(reasons, "; "),
                      "). In a clone, python3 -m venv ring && ring/bin/pip install ./client/python "
                      "installs it; ",
                      kPython, " selects the Python that has it")));
}

}  // namespace hilbert_ring::cli
