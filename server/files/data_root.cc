#include "server/files/data_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/random_bits.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr std::string_view kMarkEnding = ".root";
constexpr std::string_view kUnfinishedEnding = ".unfinished";
constexpr int64_t kMostMarkBytes = 64 << 20;
constexpr int kMarkSeconds = 60;  // within which a coordinator writes its new mark

std::string DrawWord() {
  return absl::StrCat(absl::Hex(DrawBits(), absl::kZeroPad16),
                      absl::Hex(DrawBits(), absl::kZeroPad16));
}

std::string ReadAll(int file) {
  std::string text;
  char part[1 << 14];
  while (std::ssize(text) < kMostMarkBytes) {
    const ssize_t bytes = pread(file, part, sizeof(part), static_cast<off_t>(text.size()));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    text.append(part, static_cast<size_t>(bytes));
  }
  return text;
}

absl::Status NotUsable(const std::string& path, std::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("--data-root ", path, ": ", std::string(what), ": ", std::strerror(errno)));
}

// Compares inodes because of bind mounts. `folder` may be missing.
bool IsIn(const std::string& folder, const std::string& other) {
  std::error_code error;
  auto at = std::filesystem::weakly_canonical(folder, error);
  if (error) return false;
  while (!std::filesystem::equivalent(at, other, error)) {
    if (at == at.root_path()) return false;
    at = at.parent_path();
  }
  return true;
}

enum class Removal { kDone, kNothingThere, kNotPermitted };

Removal RemoveUnfinished(int root, const std::string& path) {
  const std::string name = FileNameOf(path);
  if (!name.starts_with(kOwnFiles) || !name.ends_with(kUnfinishedEnding)) {
    return Removal::kNothingThere;
  }
  const auto folder = OpenFolderOf(root, path, Owner::kService);
  if (wire::HasReason(folder.status(), wire::reason::kFileNotPermitted)) {
    return Removal::kNotPermitted;
  }
  if (!folder.ok()) return Removal::kNothingThere;
  if (unlinkat(folder->number(), name.c_str(), 0) == 0) return Removal::kDone;
  const bool may_not = errno == EACCES || errno == EPERM || errno == EROFS;
  return may_not ? Removal::kNotPermitted : Removal::kNothingThere;
}

// A mark is dead if it is not locked, and whole or old. Marks of other users are not touched.
void RemoveIfDead(int root, const char* name) {
  const Descriptor mark(openat(root, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found = {};
  if (mark.number() < 0 || fstat(mark.number(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_uid != geteuid() || flock(mark.number(), LOCK_EX | LOCK_NB) != 0) {
    return;
  }
  const std::vector<std::string> lines = absl::StrSplit(ReadAll(mark.number()), '\n');
  if (lines.size() < 2 && std::time(nullptr) - found.st_mtim.tv_sec < kMarkSeconds) return;
  int removed = 0, left = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const Removal removal = RemoveUnfinished(root, lines[i]);
    if (removal == Removal::kDone) ++removed;
    if (removal == Removal::kNotPermitted) ++left;
  }
  if (left > 0) {
    spdlog::warn(
        "--data-root: {} unfinished outputs of an earlier coordinator (mark {}) cannot be removed "
        "without permission for their folders; removed {}",
        left, name, removed);
    return;
  }
  unlinkat(root, name, 0);
  spdlog::info("--data-root: removed mark {} and {} unfinished outputs of an earlier coordinator",
               name, removed);
}

// False, with errno, if the lock cannot be had. Retries because a starting coordinator locks fresh
// marks for a moment, in RemoveIfDead.
bool LockOwn(int mark) {
  constexpr std::chrono::milliseconds kWait{1};
  for (int tries = 0; flock(mark, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || tries == 1000) return false;
    std::this_thread::sleep_for(kWait);
  }
  return true;
}

}  // namespace

std::string ReadMark(const std::string& root, const std::string& mark_file) {
  if (!mark_file.starts_with(kOwnFiles) || mark_file.find('/') != std::string::npos) return "";
  const auto folder = OpenRoot(root);
  if (!folder.ok()) return "";
  const Descriptor mark(
      openat(folder->number(), mark_file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (mark.number() < 0) return "";
  char text[128];
  const ssize_t bytes = pread(mark.number(), text, sizeof(text), 0);
  const std::string_view read(text, static_cast<size_t>(std::max<ssize_t>(0, bytes)));
  const size_t end = read.find('\n');
  return end == std::string_view::npos ? "" : std::string(read.substr(0, end));
}

absl::Status CheckApart(const std::string& data_root, const std::string& model_dir) {
  if (data_root.empty() || model_dir.empty()) return absl::OkStatus();
  if (!IsIn(data_root, model_dir) && !IsIn(model_dir, data_root)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--data-root is ", data_root,
                                                 ", must lie outside of --model-dir (", model_dir,
                                                 ") and not hold it: callers could write models"));
}

absl::StatusOr<std::unique_ptr<DataRoot>> DataRoot::Open(const std::string& path) {
  std::unique_ptr<DataRoot> root(new DataRoot(path));
  RETURN_IF_ERROR(root->RemoveLeftovers());
  RETURN_IF_ERROR(root->MakeMark());
  return root;
}

DataRoot::~DataRoot() {
  {
    const MutexLock lock(mutex_);
    if (!unfinished_.empty()) return;  // a later RemoveIfDead removes them
  }
  const absl::StatusOr<Descriptor> root = mark_file_.empty() ? absl::NotFoundError("") : Reach();
  if (root.ok()) unlinkat(root->number(), mark_file_.c_str(), 0);
}

absl::Status DataRoot::RemoveLeftovers() const {
  const int folder = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = folder < 0 ? nullptr : fdopendir(folder);
  if (listing == nullptr) return NotUsable(path_, "cannot be read");
  while (const dirent* const entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(kOwnFiles) && name.ends_with(kMarkEnding)) {
      RemoveIfDead(dirfd(listing), entry->d_name);
    }
  }
  closedir(listing);
  return absl::OkStatus();
}

absl::Status DataRoot::MakeMark() {
  auto root = OpenRoot(path_);
  if (!root.ok()) return NotUsable(path_, "cannot be opened");
  mark_ = DrawWord();
  const std::string name =
      absl::StrCat(std::string(kOwnFiles), DrawWord().substr(0, 16), std::string(kMarkEnding));
  mark_descriptor_ = Descriptor(
      openat(root->number(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
  if (mark_descriptor_.number() < 0) return NotUsable(path_, "cannot make a file in it");
  mark_file_ = name;
  if (!LockOwn(mark_descriptor_.number())) {
    spdlog::warn(
        "--data-root {}: {} cannot be locked ({}): another coordinator here may remove unfinished "
        "outputs",
        path_, name, std::strerror(errno));
  }
  const std::string line = mark_ + "\n";
  const ssize_t written = pwrite(mark_descriptor_.number(), line.data(), line.size(), 0);
  if (written != std::ssize(line)) {
    if (written >= 0) errno = ENOSPC;
    return NotUsable(path_, "cannot write a file in it");
  }
  ASSIGN_OR_RETURN(mark_version_, VersionOf(mark_descriptor_, name));
  const MutexLock lock(mutex_);
  end_ = std::ssize(line);
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> DataRoot::Reach() const {
  ASSIGN_OR_RETURN(Descriptor root, OpenRoot(path_));
  struct stat found = {};
  if (fstatat(root.number(), mark_file_.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
      found.st_ino == mark_version_.inode) {
    return root;
  }
  return wire::ErrorOf(wire::reason::kDataRootGone,
                       absl::StrCat("--data-root ", path_,
                                    ": is not the folder of the service's start, without the file ",
                                    mark_file_, "; mount it again, or restart the service"));
}

absl::StatusOr<std::string> DataRoot::NameUnfinished(const std::string& path) {
  const MutexLock lock(mutex_);
  const std::string folder = path.substr(0, path.size() - FileNameOf(path).size());
  std::string name = absl::StrCat(folder, std::string(kOwnFiles), mark_.substr(0, 16), "-",
                                  ++drawn_, std::string(kUnfinishedEnding));
  const std::string line = name + "\n";
  if (line.find('\n') + 1 != line.size()) {
    return wire::ErrorOf(
        wire::reason::kFilePath,
        absl::StrCat("path '", path, "' has a line break, which outputs must not have"));
  }
  if (!Append(line)) return FileError(mark_file_, "cannot write", errno);
  unfinished_.insert(name);
  unfinished_bytes_ += std::ssize(line);
  return name;
}

void DataRoot::Forget(const std::string& name) {
  const MutexLock lock(mutex_);
  if (unfinished_.erase(name) > 0) unfinished_bytes_ -= std::ssize(name) + 1;
  ShortenList();
}

// False, with errno, unless all lines are written.
bool DataRoot::Append(std::string_view lines) {
  const ssize_t written = pwrite(mark_descriptor_.number(), lines.data(), lines.size(), end_);
  if (written >= 0 && written != std::ssize(lines)) errno = ENOSPC;
  if (written != std::ssize(lines)) return false;
  end_ += written;
  return true;
}

// Reduces the list to unfinished outputs. A kill at any point leaves all of them listed, because a
// copy is appended before the beginning is overwritten.
void DataRoot::ShortenList() {
  constexpr int64_t kLongList = 64 << 10;  // bytes
  const int64_t first = std::ssize(mark_) + 1;
  if (end_ < kLongList || end_ - first < 2 * unfinished_bytes_) return;
  std::string lines;
  for (const std::string& name : unfinished_) absl::StrAppend(&lines, name, "\n");
  if (!Append(lines)) return;
  const int file = mark_descriptor_.number();
  if (pwrite(file, lines.data(), lines.size(), first) != std::ssize(lines)) return;
  const int64_t end = first + std::ssize(lines);
  if (ftruncate(file, end) == 0) end_ = end;
}

}  // namespace hilbert_ring::server
