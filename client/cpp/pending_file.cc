#include "client/cpp/pending_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/errors.h"
#include "client/cpp/write_all.h"
#include "engine/base/return_if_error.h"
#include "wire/checksum.h"

namespace hilbert_ring::client {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // the system's limit

fs::path FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::optional<int> DescriptorOf(const fs::path& path) {
  int descriptor = -1;
  if (!absl::SimpleAtoi(path.filename().string(), &descriptor)) return std::nullopt;
  std::error_code error;
  const fs::path own = fs::canonical("/proc/self/fd", error);
  if (error || fs::canonical(FolderOf(path), error) != own || error) return std::nullopt;
  return descriptor;
}

bool LiesInProc(const fs::path& path) {
  struct statfs info;
  return statfs(FolderOf(path).c_str(), &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

// Each failed round is another writer's progress.
constexpr int kMaxRounds = 100;
constexpr absl::string_view kEnding = ".partial";

// Returns whether `path` still names the open file, not a replacement.
bool IsNamed(const std::string& path, const Descriptor& file) {
  struct stat opened, named;
  return fstat(file.number(), &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

absl::Status NotAFile(const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot write: exists and is not a file"));
}

// Returns an open, locked descriptor; empty if another writer interfered.
absl::StatusOr<Descriptor> OpenLocked(const std::string& partial, mode_t mode) {
  // Not truncated, because another writer may hold it. O_NONBLOCK: open a pipe without waiting.
  Descriptor file(
      open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  const int fd = file.number();
  if (fd < 0 && errno == ELOOP) return NotAFile(partial);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(partial, ": cannot create"));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return NotAFile(partial);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat(partial, ": is being written already"));
  }
  // Before the lock, another writer may have committed or removed this file.
  if (!IsNamed(partial, file)) return Descriptor();
  if (fstat(fd, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(partial, ": cannot read its size"));
  }
  if (info.st_size > 0 || info.st_nlink > 1) {
    // A leftover of a killed client. It keeps its bytes, because another link may name it.
    if (unlink(partial.c_str()) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(partial, ": cannot remove the old file"));
    }
    return Descriptor();
  }
  return file;
}

// Opens for writing, without waiting for the reader of a pipe.
absl::StatusOr<Descriptor> OpenInPlace(const OutputPlace& place) {
  if (place.descriptor >= 0) {
    Descriptor own(fcntl(place.descriptor, F_DUPFD_CLOEXEC, 0));
    if (own.number() >= 0) return own;
    return absl::ErrnoToStatus(errno, absl::StrCat(place.path, ": cannot write"));
  }
  const std::string& path = place.path;
  struct stat info;
  if (stat(path.c_str(), &info) == 0 &&
      (S_ISDIR(info.st_mode) || S_ISBLK(info.st_mode) || S_ISSOCK(info.st_mode))) {
    return NotAFile(path);
  }
  // O_APPEND: another process may have the file open, whose bytes stay.
  Descriptor file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  const int fd = file.number();
  if (fd < 0 && errno == ENXIO) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot write: it has no reader"));
  }
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot write"));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return file;
}

// Some file systems give all files one mode, which then counts as kept.
absl::Status SetMode(int fd, int mode, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) == 0 && static_cast<int>(info.st_mode & ACCESSPERMS) == mode) {
    return absl::OkStatus();
  }
  if (fchmod(fd, static_cast<mode_t>(mode)) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(
      errno, absl::StrCat(path, ": cannot keep its mode of ", absl::StrFormat("%04o", mode)));
}

// Ignores folders that cannot be synced at all.
absl::Status SyncFolderOf(const std::string& path) {
  const std::string folder = FolderOf(path);
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() < 0 || fsync(opened.number()) == 0 || errno == EINVAL || errno == ENOTSUP ||
      errno == EROFS) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(
      errno, absl::StrCat(path, ": complete, but its name may not be on disk: ", folder));
}

}  // namespace

absl::StatusOr<OutputPlace> FindOutput(const std::string& path) {
  if (path == "-") return OutputPlace{.path = path, .descriptor = STDOUT_FILENO, .in_place = true};
  fs::path at = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    if (const auto descriptor = DescriptorOf(at)) {
      return OutputPlace{.path = path, .descriptor = *descriptor, .in_place = true};
    }
    struct stat info;
    if (lstat(at.c_str(), &info) != 0) {
      if (errno != ENAMETOOLONG) return OutputPlace{.path = at.string()};
      return absl::ErrnoToStatus(errno, absl::StrCat(at.string(), ": cannot write"));
    }
    if (S_ISREG(info.st_mode)) {
      return OutputPlace{.path = at.string(), .mode = static_cast<int>(info.st_mode & ACCESSPERMS)};
    }
    if (!S_ISLNK(info.st_mode)) return OutputPlace{.path = at.string(), .in_place = true};
    // A link in /proc may have no path as its target.
    if (LiesInProc(at)) return OutputPlace{.path = at.string(), .in_place = true};
    std::error_code error;
    const fs::path target = fs::read_symlink(at, error);
    if (error) return OutputPlace{.path = at.string()};  // opening it returns the error
    at = target.is_absolute() ? target : FolderOf(at) / target;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot write: more than ", kMostLinks, " symbolic links"));
}

bool IsStdout(const std::string& path) {
  if (path.empty()) return false;
  const auto place = FindOutput(path);
  return place.ok() && place->descriptor == STDOUT_FILENO;
}

std::string PartialPath(const std::string& path) {
  const size_t name = path.rfind('/') + 1;
  if (path.size() - name + kEnding.size() <= NAME_MAX) return absl::StrCat(path, kEnding);
  const uint32_t sum = wire::Crc32c(std::string_view(path).substr(name));
  return absl::StrCat(path.substr(0, name), absl::Hex(sum, absl::kZeroPad8), kEnding);
}

absl::StatusOr<PendingFile> PendingFile::Create(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("a file to write has no path");
  RETURN_IF_ERROR(CheckPath(path));
  ASSIGN_OR_RETURN(OutputPlace place, FindOutput(path));
  if (place.in_place) {
    ASSIGN_OR_RETURN(Descriptor file, OpenInPlace(place));
    return PendingFile(std::move(place), std::move(file));
  }
  const std::string partial = PartialPath(place.path);
  for (int round = 0; round < kMaxRounds; ++round) {
    ASSIGN_OR_RETURN(Descriptor file, OpenLocked(partial, place.mode < 0 ? 0666 : 0600));
    if (file.number() >= 0) return PendingFile(std::move(place), std::move(file));
  }
  return absl::AlreadyExistsError(
      absl::StrCat(partial, ": other writers took it ", kMaxRounds, " times"));
}

PendingFile::~PendingFile() {
  if (fd() < 0 || place_.in_place) return;
  const std::string partial = WrittenPath();
  if (IsNamed(partial, fd_)) unlink(partial.c_str());
}

std::string PendingFile::WrittenPath() const {
  return place_.in_place ? place_.path : PartialPath(place_.path);
}

absl::Status PendingFile::Append(std::string_view bytes) {
  return WriteAll(fd_, std::as_bytes(std::span(bytes)), WrittenPath());
}

absl::Status PendingFile::Sync() {
  if (fsync(fd()) == 0) return absl::OkStatus();
  // Pipes and terminals have no disk.
  if (place_.in_place && (errno == EINVAL || errno == ENOTSUP || errno == EROFS)) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat(WrittenPath(), ": cannot write to disk"));
}

absl::Status PendingFile::Commit() {
  RETURN_IF_ERROR(Sync());
  if (place_.in_place) {
    fd_ = Descriptor();
    return absl::OkStatus();
  }
  const std::string& path = place_.path;
  const std::string partial = PartialPath(path);
  if (!IsNamed(partial, fd_)) {
    return absl::AbortedError(
        absl::StrCat(partial, ": was removed or replaced while it was written"));
  }
  if (place_.mode >= 0) RETURN_IF_ERROR(SetMode(fd(), place_.mode, path));
  if (rename(partial.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot rename from ", partial));
  }
  fd_ = Descriptor();
  return SyncFolderOf(path);
}

}  // namespace hilbert_ring::client
