#include "tests/conformance/rank_processes.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(5);

// NCCL rejects two ranks on one GPU unless each claims a host of its own.
std::vector<std::string> Environment(int rank) {
  std::vector<std::string> variables = {absl::StrCat("NCCL_HOSTID=rank", rank),
                                        "NCCL_P2P_DISABLE=1",
                                        "NCCL_SHM_DISABLE=1",
                                        "NCCL_NET=Socket",
                                        "NCCL_SOCKET_IFNAME=lo",
                                        "NCCL_MAX_CTAS=1"};
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    if (!absl::StartsWith(*inherited, "NCCL_")) variables.emplace_back(*inherited);
  }
  return variables;
}

// The built program, unless a test runs elsewhere and names another.
std::string RankProgram() {
  const char* const elsewhere = std::getenv("HILBERT_RING_RANK_BINARY");
  return elsewhere != nullptr ? elsewhere : HILBERT_RING_RANK_BINARY;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t Spawn(std::vector<std::string> words, int rank) {
  std::vector<std::string> variables = Environment(rank);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, words[0].c_str(), nullptr, nullptr, Pointers(words).data(),
                                Pointers(variables).data());
  return error == 0 ? pid : -1;
}

}  // namespace

RankProcesses::RankProcesses(const std::string& kind, int size, const std::string& scenario,
                             std::chrono::milliseconds step_limit) {
  std::string name = fs::temp_directory_path() / "hilbert_ring_ranks_XXXXXX";
  folder_ = mkdtemp(name.data());
  for (int rank = 0; rank < size; ++rank) {
    pids_.push_back(Spawn({RankProgram(), kind, absl::StrCat(rank), absl::StrCat(size), folder_,
                           scenario, absl::StrCat(step_limit.count())},
                          rank));
  }
}

RankProcesses::~RankProcesses() {
  for (const pid_t pid : pids_) {
    if (pid > 0) kill(pid, SIGKILL);
  }
  for (const pid_t pid : pids_) {
    if (pid > 0) waitpid(pid, nullptr, 0);
  }
  fs::remove_all(folder_);
}

bool RankProcesses::AwaitRunning(Deadline deadline) const {
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    while (!fs::exists(folder_ / absl::StrCat("running.", rank))) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kPoll);
    }
  }
  return true;
}

bool RankProcesses::AwaitEnd(Deadline deadline) {
  for (pid_t& pid : pids_) {
    while (pid > 0 && waitpid(pid, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kPoll);
    }
    pid = -1;
  }
  return true;
}

void RankProcesses::Kill(int rank) const { kill(pids_[rank], SIGKILL); }

std::string RankProcesses::Outcome(int rank) const {
  std::stringstream text;
  text << std::ifstream(folder_ / absl::StrCat("outcome.", rank)).rdbuf();
  return text.str();
}

}  // namespace hilbert_ring::testing
