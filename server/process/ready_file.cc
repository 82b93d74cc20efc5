#include "server/process/ready_file.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/spec/watched_json.h"
#include "nlohmann/json.hpp"
#include "server/process/regular_file.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostReadyBytes = 1 << 20;  // enough for 4,096 workers

bool IsLocked(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool locked = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return locked;
}

}  // namespace

absl::Status ReadyFile::Check(const std::string& path) {
  struct stat there = {};
  // Show logs the error of a wrong path.
  if (path.empty() || lstat(path.c_str(), &there) != 0) return absl::OkStatus();
  const auto refused = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ready-file ", path, " ", why,
                     ", must be absent or the ready file of a process that ended"));
  };
  // Opening a device may have effects.
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

ReadyFile::ReadyFile(std::string path) : path_(std::move(path)) { Hide(); }

ReadyFile::~ReadyFile() { Hide(); }

void ReadyFile::Show(const std::map<std::string, int>& ports,
                     const std::vector<std::string>& workers) {
  if (path_.empty()) return;
  nlohmann::json json(ports);
  json["pid"] = getpid();
  json["workers"] = workers;
  const MutexLock lock(mutex_);
  if (const absl::Status status = CheckOwn(); !status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return;
  }
  const std::string draft = absl::StrCat(path_, ".", getpid(), ".draft");
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file >= 0) flock(file, LOCK_EX | LOCK_NB);  // fails on a disk without locks
  if (file >= 0 && dprintf(file, "%s\n", json.dump().c_str()) >= 0 &&
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

void ReadyFile::Hide() {
  if (path_.empty()) return;
  const MutexLock lock(mutex_);
  if (CheckOwn().ok()) unlink(path_.c_str());
  Keep(-1);
}

absl::Status ReadyFile::CheckOwn() const {
  struct stat own = {}, there = {};
  const bool is_own = file_ >= 0 && fstat(file_, &own) == 0 && lstat(path_.c_str(), &there) == 0 &&
                      own.st_dev == there.st_dev && own.st_ino == there.st_ino;
  return is_own ? absl::OkStatus() : Check(path_);
}

void ReadyFile::Keep(int file) {
  if (file_ >= 0) close(file_);
  file_ = file;
}

}  // namespace hilbert_ring::server
