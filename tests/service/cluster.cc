#include "tests/service/cluster.h"

#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "grpcpp/create_channel.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStartLimit = std::chrono::seconds(30);
constexpr auto kStopLimit = std::chrono::seconds(20);
constexpr auto kPoll = std::chrono::milliseconds(5);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Parent and state of a process from /proc/PID/stat; 0 when it is gone.
pid_t ParentOf(pid_t pid, char* state) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return 0;
  int parent = 0;
  std::sscanf(stat.c_str() + end + 1, " %c %d", state, &parent);
  return parent;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(const ClusterOptions& options) {
  std::unique_ptr<Cluster> cluster(new Cluster);
  char folder[] = "/tmp/hilbert_ring_test_XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::InternalError("mkdtemp failed");
  cluster->folder_ = folder;
  const std::string ready = absl::StrCat(folder, "/ready.json");
  std::vector<std::string> arguments = {
      HILBERT_RING_COORDINATOR_BINARY,
      absl::StrCat("--spawn-workers=", options.workers),
      absl::StrCat("--job-workers=", options.spread ? options.workers : 0),
      "--grpc-host=127.0.0.1",
      "--http-host=127.0.0.1",
      "--grpc-port=0",
      "--http-port=0",
      "--membership-port=0",
      "--log-level=warn",
      absl::StrCat("--ready-file=", ready)};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  if (posix_spawn(&cluster->pid_, argv[0], nullptr, nullptr, argv.data(), environ) != 0) {
    cluster->pid_ = -1;
    return absl::InternalError(absl::StrCat("cannot start ", argv[0]));
  }
  const Clock::time_point limit = Clock::now() + kStartLimit;
  while (Clock::now() < limit) {
    const auto json = nlohmann::json::parse(ReadFile(ready), nullptr, false);
    if (json.is_object()) {
      cluster->grpc_port_ = json.at("grpc_port").get<int>();
      cluster->http_port_ = json.at("http_port").get<int>();
      cluster->membership_port_ = json.at("membership_port").get<int>();
      return cluster;
    }
    int status = 0;
    if (waitpid(cluster->pid_, &status, WNOHANG) == cluster->pid_) {
      cluster->pid_ = -1;
      return absl::InternalError(absl::StrCat("coordinator ended with ", status));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return absl::DeadlineExceededError("coordinator was not ready in time");
}

Cluster::~Cluster() {
  if (pid_ > 0) Stop();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string Cluster::address() const { return absl::StrCat("127.0.0.1:", grpc_port_); }

std::string Cluster::membership_address() const {
  return absl::StrCat("127.0.0.1:", membership_port_);
}

std::vector<pid_t> Cluster::WorkerPids() const {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    char state = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &pid) && ParentOf(pid, &state) == pid_ &&
        state != 'Z') {
      pids.push_back(pid);
    }
  }
  return pids;
}

std::shared_ptr<grpc::Channel> Cluster::Channel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(8 << 20);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
}

std::unique_ptr<v1::AttentionService::Stub> Cluster::Stub() const {
  return v1::AttentionService::NewStub(Channel());
}

absl::StatusOr<std::string> Cluster::HttpGet(const std::string& path) const {
  addrinfo hints{.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo("127.0.0.1", std::to_string(http_port_).c_str(), &hints, &found) != 0) {
    return absl::InternalError("getaddrinfo");
  }
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const bool connected = connect(fd, found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  std::string response;
  if (connected) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    if (write(fd, request.data(), request.size()) > 0) {
      char buffer[4096];
      for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) response.append(buffer, n);
    }
  }
  close(fd);
  const size_t body = response.find("\r\n\r\n");
  if (body == std::string::npos) return absl::UnavailableError("no HTTP response");
  if (response.find(" 200 ") > response.find("\r\n")) {
    return absl::FailedPreconditionError(response.substr(0, response.find("\r\n")));
  }
  return response.substr(body + 4);
}

void Cluster::Signal(int signal) const { kill(pid_, signal); }

int Cluster::Stop() {
  kill(pid_, SIGTERM);
  const Clock::time_point limit = Clock::now() + kStopLimit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > limit) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      break;
    }
    std::this_thread::sleep_for(kPoll);
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

ProcessMemory MemoryOf(pid_t pid) {
  ProcessMemory memory;
  for (const std::string& line : static_cast<std::vector<std::string>>(
           absl::StrSplit(ReadFile(absl::StrCat("/proc/", pid, "/status")), '\n'))) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    int64_t kib = 0;
    if (parts.size() < 2 || !absl::SimpleAtoi(parts[1], &kib)) continue;
    if (parts[0] == "RssAnon") memory.anonymous = kib << 10;
    if (parts[0] == "RssFile") memory.file = kib << 10;
    if (parts[0] == "RssShmem") memory.shared = kib << 10;
  }
  return memory;
}

bool IsAlive(pid_t pid) {
  char state = 0;
  return ParentOf(pid, &state) != 0 && state != 'Z';
}

}  // namespace hilbert_ring::testing
