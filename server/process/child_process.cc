#include "server/process/child_process.h"

#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/process/stop_signals.h"

namespace hilbert_ring::server {
namespace {

constexpr int kCannotExecute = 127;

// After fork: only async-signal-safe calls, because other threads may have held any lock.
[[noreturn]] void RunChild(pid_t parent, const char* program, char** argv, char** environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotExecute);  // the parent ended before the line above
  UnblockStopSignals();
  close_range(STDERR_FILENO + 1, ~0U, 0);
  execve(program, argv, environment);
  _exit(kCannotExecute);
}

std::string NameOf(const std::string& variable) {
  return variable.substr(0, variable.find('=') + 1);
}

std::vector<std::string> ChildEnvironment(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string variable = *inherited;
    const bool replaced =
        std::any_of(variables.begin(), variables.end(),
                    [&](const std::string& other) { return NameOf(other) == NameOf(variable); });
    if (!replaced && !absl::StartsWith(variable, "HILBERT_RING_")) all.push_back(variable);
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& variables) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> values = ChildEnvironment(variables);
  const std::vector<char*> argv = Pointers(words), environment = Pointers(values);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::UnavailableError(absl::StrCat("cannot start ", program, ": ", strerror(errno)));
  }
  if (pid == 0) {
    RunChild(parent, program.c_str(), const_cast<char**>(argv.data()),
             const_cast<char**>(environment.data()));
  }
  return pid;
}

bool ChildRuns(pid_t pid, std::string& description) {
  int status = 0;
  const pid_t ended = waitpid(pid, &status, WNOHANG);
  if (ended == 0) return true;
  if (ended < 0) {
    description = strerror(errno);
  } else if (WIFSIGNALED(status)) {
    description = absl::StrCat("signal ", WTERMSIG(status));
  } else {
    description = absl::StrCat("exit status ", WEXITSTATUS(status));
  }
  return false;
}

std::string ExecutableFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string whole(path, length > 0 ? static_cast<size_t>(length) : 0);
  return whole.substr(0, whole.rfind('/'));
}

}  // namespace hilbert_ring::server
