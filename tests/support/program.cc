#include "tests/support/program.h"

#include <signal.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "server/process/child_process.h"

namespace hilbert_ring::testing {

absl::StatusOr<std::unique_ptr<Program>> Program::Start(const ProgramOptions& options) {
  // The shell and `ip` replace themselves by the program and keep the process id.
  std::vector<std::string> words = {
      "-c", R"(log="$1"; shift; if [ "$log" ]; then exec >>"$log" 2>&1; fi; exec "$@")", "sh",
      options.log};
  if (!options.network.empty()) {
    words.insert(words.end(), {"ip", "netns", "exec", options.network});
  }
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  const auto pid = server::StartChild("/bin/sh", words);
  if (!pid.ok()) return pid.status();
  return std::unique_ptr<Program>(new Program(*pid));
}

Program::~Program() {
  if (!Runs()) return;
  Signal(SIGKILL);
  AwaitEnd(std::chrono::seconds(10)).IgnoreError();
}

bool Program::Runs() {
  if (!ended_) ended_ = !server::ChildRuns(pid_, how_);
  return !ended_;
}

void Program::Signal(int signal) const {
  if (!ended_) kill(pid_, signal);
}

absl::StatusOr<std::string> Program::AwaitEnd(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (Runs()) {
    if (std::chrono::steady_clock::now() > end) {
      return absl::DeadlineExceededError(
          absl::StrCat("process ", pid_, " has not ended in ", limit.count(), " ms"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return how_;
}

}  // namespace hilbert_ring::testing
