#include "server/process/ready_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/spec/watched_json.h"
#include "nlohmann/json.hpp"
#include "server/process/regular_file.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::seconds kEndLimit{2};

constexpr size_t kMostReadyBytes = 1 << 20;  // names 4,096 workers

// Whether another process shows this file.
bool IsLocked(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool locked = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return locked;
}

// The file that this process shows. For one thread.
class ShownFile {
 public:
  explicit ShownFile(const std::string& path) : path_(path) {}
  ~ShownFile() { Keep(-1); }
  ShownFile(const ShownFile&) = delete;
  ShownFile& operator=(const ShownFile&) = delete;

  void Write(const std::string& text) {
    if (const absl::Status status = Check(); !status.ok()) {
      spdlog::error("{}", std::string(status.message()));
      return;
    }
    const std::string draft = absl::StrCat(path_, ".", getpid(), ".draft");
    const int file =
        open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file >= 0) flock(file, LOCK_EX | LOCK_NB);  // fails on a disk without locks
    if (file >= 0 && dprintf(file, "%s\n", text.c_str()) >= 0 &&
        std::rename(draft.c_str(), path_.c_str()) == 0) {
      return Keep(file);
    }
    const std::string reason = std::strerror(errno);
    if (file >= 0) {
      close(file);
      unlink(draft.c_str());
    }
    spdlog::error("ready file {}: {}", path_, reason);
  }

  void Remove() {
    if (Check().ok()) unlink(path_.c_str());
    Keep(-1);
  }

 private:
  absl::Status Check() const {
    struct stat own = {}, there = {};
    const bool is_own = file_ >= 0 && fstat(file_, &own) == 0 &&
                        lstat(path_.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
                        own.st_ino == there.st_ino;
    return is_own ? absl::OkStatus() : ReadyFile::Check(path_);
  }

  void Keep(int file) {
    if (file_ >= 0) close(file_);
    file_ = file;
  }

  const std::string& path_;
  int file_ = -1;  // open and locked while it is shown
};

}  // namespace

absl::Status ReadyFile::Check(const std::string& path) {
  struct stat there = {};
  // Writing the file tells if the path is wrong.
  if (path.empty() || lstat(path.c_str(), &there) != 0) return absl::OkStatus();
  const auto refused = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ready-file ", path, " ", why,
                     ", must be absent or the ready file of a process that ended"));
  };
  // Opening a device may do something.
  if (!S_ISREG(there.st_mode)) return refused("is no regular file");
  const auto text = ReadRegularFile(path, kMostReadyBytes);
  if (!text.ok()) return refused(text.status().message());
  const auto json = ParseWatchedJson(*text, "the file");
  const bool known = json.ok() && json->is_object() && json->contains("pid") &&
                     json->at("pid").is_number_integer();
  if (!known) return refused("is no ready file (a JSON object with pid)");
  if (IsLocked(path)) {
    return refused(absl::StrCat("is the ready file of process ", json->at("pid").dump()));
  }
  return absl::OkStatus();
}

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
    ShownFile file(path);
    MutexLock lock(mutex);
    while (!ending || !is_so) {
      if (is_so) {
        changed.wait(lock);
        continue;
      }
      const std::optional<std::string> text = wanted;
      lock.unlock();
      if (text) {
        file.Write(*text);
      } else {
        file.Remove();
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
