#include "server/process/ready_file.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::seconds kEndLimit{2};

void Write(const std::string& path, const std::string& text) {
  const std::string draft = absl::StrCat(path, ".", getpid(), ".draft");
  std::ofstream file(draft);
  file << text << '\n';
  file.close();
  if (file && std::rename(draft.c_str(), path.c_str()) == 0) return;
  const std::string reason = std::strerror(errno);
  unlink(draft.c_str());
  spdlog::error("ready file {}: {}", path, reason);
}

}  // namespace

struct ReadyFile::Shared {
  explicit Shared(std::string path_of_file) : path(std::move(path_of_file)) {}

  const std::string path;
  Mutex mutex;
  ConditionVariable changed;
  std::optional<std::string> wanted ABSL_GUARDED_BY(mutex);  // its text; nullopt: no file
  bool is_so ABSL_GUARDED_BY(mutex) = false;
  bool ending ABSL_GUARDED_BY(mutex) = false;

  void Want(std::optional<std::string> text, bool last = false) {
    const MutexLock lock(mutex);
    ending = last;
    wanted = std::move(text);
    is_so = false;
    changed.notify_all();
  }

  // In the thread, until the end.
  void Serve() {
    MutexLock lock(mutex);
    while (!ending || !is_so) {
      if (is_so) {
        changed.wait(lock);
        continue;
      }
      const std::optional<std::string> text = wanted;
      lock.unlock();
      if (text) {
        Write(path, *text);
      } else {
        unlink(path.c_str());
      }
      lock.lock();
      is_so = text == wanted;
      changed.notify_all();
    }
  }
};

ReadyFile::ReadyFile(std::string path) {
  if (path.empty()) return;
  shared_ = std::make_shared<Shared>(std::move(path));
  // The file system may hold it for ever: nobody joins it.
  std::thread([shared = shared_] {
    pthread_setname_np(pthread_self(), "ready_file");  // for ps -L
    shared->Serve();
  }).detach();
}

ReadyFile::~ReadyFile() {
  if (shared_ == nullptr) return;
  Shared& shared = *shared_;
  shared.Want(std::nullopt, /*last=*/true);
  MutexLock lock(shared.mutex);
  shared.changed.wait_for(
      lock, kEndLimit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared.mutex) { return shared.is_so; });
}

void ReadyFile::Show(const std::map<std::string, int>& ports,
                     const std::vector<std::string>& workers) {
  if (shared_ == nullptr) return;
  nlohmann::json json(ports);
  json["pid"] = getpid();
  json["workers"] = workers;
  shared_->Want(json.dump());
}

void ReadyFile::Hide() {
  if (shared_ != nullptr) shared_->Want(std::nullopt);
}

}  // namespace hilbert_ring::server
