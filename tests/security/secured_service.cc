#include "tests/security/secured_service.h"

#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/free_port.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStartLimit = std::chrono::seconds(30);
constexpr auto kStopLimit = std::chrono::seconds(20);
constexpr auto kPoll = std::chrono::milliseconds(10);

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

nlohmann::json ReadJson(const std::string& path) {
  return nlohmann::json::parse(ReadAll(path), nullptr, false);
}

}  // namespace

TestFolder::TestFolder() {
  char path[] = "/tmp/hilbert_ring_security_XXXXXX";
  if (mkdtemp(path) == nullptr) std::abort();
  path_ = path;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string SecuredService::address() const { return absl::StrCat("127.0.0.1:", grpc_port_); }

absl::StatusOr<std::unique_ptr<SecuredService>> SecuredService::Start(
    const SecuredServiceOptions& options) {
  std::unique_ptr<SecuredService> service(new SecuredService);
  const TestFolder& folder = service->folder_;
  service->membership_port_ = FreePort();
  const std::string ready = folder / "coordinator.json";
  std::vector<std::string> arguments = {
      HILBERT_RING_COORDINATOR_BINARY,
      "--grpc-host=127.0.0.1",
      "--http-host=127.0.0.1",
      "--membership-host=127.0.0.1",
      "--grpc-port=0",
      "--http-port=0",
      absl::StrCat("--membership-port=", service->membership_port_),
      absl::StrCat("--spawn-workers=", options.spawned),
      "--min-workers=2",
      "--worker-threads=1",
      absl::StrCat("--ready-file=", ready)};
  arguments.insert(arguments.end(), options.coordinator.begin(), options.coordinator.end());
  auto coordinator =
      Program::Start({.arguments = std::move(arguments), .log = folder / "coordinator.log"});
  if (!coordinator.ok()) return coordinator.status();
  service->coordinator_ = *std::move(coordinator);
  for (int i = 0; options.spawned == 0 && i < 2; ++i) {
    if (absl::Status status = service->AddWorker(options.worker); !status.ok()) return status;
  }
  const auto wrong = [&](const char* what) {
    return absl::UnavailableError(absl::StrCat(what, "\n", service->Logs()));
  };
  const Clock::time_point limit = Clock::now() + kStartLimit;
  nlohmann::json told;
  while (!(told = ReadJson(ready)).is_object()) {
    if (!service->coordinator_->Runs()) return wrong("the coordinator ended");
    if (Clock::now() > limit) return wrong("the service was not ready in time");
    std::this_thread::sleep_for(kPoll);
  }
  service->grpc_port_ = told.at("grpc_port").get<int>();
  service->http_port_ = told.at("http_port").get<int>();
  for (size_t i = 0; i < service->workers_.size(); ++i) {
    while (!(told = ReadJson(folder / absl::StrCat("worker", i, ".json"))).is_object()) {
      if (Clock::now() > limit) return wrong("a worker was not ready in time");
      std::this_thread::sleep_for(kPoll);
    }
    service->worker_ports_.push_back(told.at("grpc_port").get<int>());
  }
  return service;
}

SecuredService::~SecuredService() {
  for (const auto& worker : workers_) worker->Signal(SIGTERM);
  if (coordinator_ != nullptr) {
    coordinator_->Signal(SIGTERM);
    coordinator_->AwaitEnd(kStopLimit).IgnoreError();
  }
}

std::vector<pid_t> SecuredService::Processes() const {
  std::vector<pid_t> processes = {coordinator_->pid()};
  for (const auto& worker : workers_) processes.push_back(worker->pid());
  return processes;
}

absl::Status SecuredService::AddWorker(const std::vector<std::string>& further) {
  const size_t index = workers_.size();
  std::vector<std::string> arguments = {
      HILBERT_RING_WORKER_BINARY,
      absl::StrCat("--coordinator=127.0.0.1:", membership_port_),
      "--host=127.0.0.1",
      "--port=0",
      "--threads=1",
      "--memory-limit=1GiB",
      absl::StrCat("--ready-file=", folder_ / absl::StrCat("worker", index, ".json"))};
  arguments.insert(arguments.end(), further.begin(), further.end());
  auto worker = Program::Start(
      {.arguments = std::move(arguments), .log = folder_ / absl::StrCat("worker", index, ".log")});
  if (!worker.ok()) return worker.status();
  workers_.push_back(*std::move(worker));
  return absl::OkStatus();
}

std::string SecuredService::Logs() const {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    if (entry.path().extension() == ".log") absl::StrAppend(&text, ReadAll(entry.path()));
  }
  return text;
}

}  // namespace hilbert_ring::testing
