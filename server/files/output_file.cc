#include "server/files/output_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr mode_t kOwnerAlone = S_IRUSR | S_IWUSR;

// The file at the path, if any. Follows no link.
absl::StatusOr<std::optional<struct stat>> FindThere(const Descriptor& folder,
                                                     const std::string& path) {
  struct stat found = {};
  if (fstatat(folder.number(), FileNameOf(path).c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) {
    return found;
  }
  if (errno == ENOENT) return std::nullopt;
  return FileError(path, "cannot look at it", errno);
}

bool IsForOwnerAlone(const struct stat& file) { return (file.st_mode & (S_IRGRP | S_IROTH)) == 0; }

// Copies mode and owner of the replaced file. Some file systems have a single mode for all files.
absl::Status SetMode(const Descriptor& file, const std::string& path, const struct stat& before) {
  struct stat now = {};
  if (fstat(file.number(), &now) != 0) return FileError(path, "cannot look at it", errno);
  if (now.st_uid != before.st_uid || now.st_gid != before.st_gid) {
    // Most users may not. CheckReplaceable refuses files that would then lose their reader.
    [[maybe_unused]] const int given = fchown(file.number(), before.st_uid, before.st_gid);
  }
  if (((now.st_mode ^ before.st_mode) & ACCESSPERMS) == 0 ||
      fchmod(file.number(), before.st_mode & ACCESSPERMS) == 0) {
    return absl::OkStatus();
  }
  return FileError(path, "cannot keep its mode", errno);
}

// Allocates the room, so that a full disk fails the job before it starts. In tmpfs that would
// double the time of page faults: only the free space is checked there.
absl::Status TakeRoom(const Descriptor& file, const std::string& path, int64_t bytes) {
  struct statfs system = {};
  if (fstatfs(file.number(), &system) != 0) return FileError(path, "cannot look at it", errno);
  const auto free = static_cast<int64_t>(system.f_bavail) * system.f_bsize;
  const bool counted = system.f_blocks > 0;  // other file systems report no limit
  if (counted && free < bytes) {
    return wire::ErrorOf(wire::reason::kFileNoSpace,
                         absl::StrCat(path, ": takes ", bytes, " bytes, its disk has ", free));
  }
  if (system.f_type != TMPFS_MAGIC) {
    int failed = 0;
    do {
      failed = fallocate(file.number(), 0, 0, bytes) == 0 ? 0 : errno;
    } while (failed == EINTR);
    if (failed == 0) return absl::OkStatus();
    if (failed != EOPNOTSUPP && failed != ENOSYS) {
      return FileError(path, absl::StrCat("cannot take ", bytes, " bytes"), failed);
    }
  }
  if (ftruncate(file.number(), bytes) == 0) return absl::OkStatus();
  return FileError(path, absl::StrCat("cannot take ", bytes, " bytes"), errno);
}

absl::Status Changed(const std::string& path, const char* how) {
  return wire::ErrorOf(wire::reason::kFileChanged,
                       absl::StrCat(path, ": its unfinished file was ", how));
}

}  // namespace

absl::Status CheckReplaceable(int root, const std::string& path) {
  ASSIGN_OR_RETURN(const Descriptor folder, OpenFolderOf(root, path));
  if (faccessat(folder.number(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    return FileError(path, "its folder cannot be written to", errno);
  }
  ASSIGN_OR_RETURN(const auto there, FindThere(folder, path));
  if (!there) return absl::OkStatus();
  if (S_ISREG(there->st_mode)) {
    const uid_t own = geteuid();
    if (own == 0 || own == there->st_uid || !IsForOwnerAlone(*there)) return absl::OkStatus();
    return wire::ErrorOf(
        wire::reason::kFileNotPermitted,
        absl::StrCat(path, ": its mode is ", absl::StrFormat("%04o", there->st_mode & ACCESSPERMS),
                     " and its owner the user ", there->st_uid,
                     ", must be readable for its group: the service, user ", own,
                     ", cannot give it back"));
  }
  if (S_ISLNK(there->st_mode)) return FileError(path, "must be a regular file", ELOOP);
  const auto opened = OpenFile(root, path, O_RDONLY);  // for its error
  return opened.ok() ? absl::OkStatus() : opened.status();
}

absl::StatusOr<OutputFile> OutputFile::Create(DataRoot& data_root, int root,
                                              const OutputFileOptions& options) {
  RETURN_IF_ERROR(CheckReplaceable(root, options.path));
  OutputFile output;
  output.path_ = options.path;
  output.offset_ = std::ssize(options.header);
  ASSIGN_OR_RETURN(output.folder_, OpenFolderOf(root, options.path));
  ASSIGN_OR_RETURN(const auto before, FindThere(output.folder_, options.path));
  const mode_t mode = before && IsForOwnerAlone(*before) ? kOwnerAlone : kFileMode;
  ASSIGN_OR_RETURN(output.unfinished_, data_root.NameUnfinished(options.path));
  output.data_root_ = &data_root;
  output.file_ = Descriptor(openat(output.folder_.number(), FileNameOf(output.unfinished_).c_str(),
                                   O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (output.file_.number() < 0) return FileError(options.path, "no file can be made", errno);
  RETURN_IF_ERROR(TakeRoom(output.file_, options.path, output.offset_ + options.data_bytes));
  const ssize_t written =
      pwrite(output.file_.number(), options.header.data(), options.header.size(), 0);
  if (written != output.offset_) {
    return FileError(options.path, "cannot write", written < 0 ? errno : ENOSPC);
  }
  ASSIGN_OR_RETURN(output.version_, VersionOf(output.file_, options.path));
  return output;
}

OutputFile::~OutputFile() {
  if (folder_.number() < 0) return;  // moved from
  if (data_root_ == nullptr) return;
  const bool made = file_.number() >= 0 && !committed_;
  if (made && unlinkat(folder_.number(), FileNameOf(unfinished_).c_str(), 0) != 0 &&
      errno != ENOENT) {
    spdlog::warn("--data-root: {} cannot be removed ({}); a later coordinator tries again",
                 unfinished_, std::strerror(errno));
    return;
  }
  data_root_->Forget(unfinished_);
}

absl::Status OutputFile::Sync() const {
  if (fdatasync(file_.number()) != 0) return FileError(path_, "cannot bring it to the disk", errno);
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  ASSIGN_OR_RETURN(const FileVersion now, VersionOf(file_, path_));
  if (now.bytes != version_.bytes) return Changed(path_, "resized");
  if (fsync(file_.number()) != 0) return FileError(path_, "cannot bring it to the disk", errno);
  const std::string from = FileNameOf(unfinished_);
  struct stat found = {};
  if (fstatat(folder_.number(), from.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
      found.st_ino != version_.inode) {
    return Changed(path_, "removed or replaced");
  }
  ASSIGN_OR_RETURN(const auto before, FindThere(folder_, path_));
  if (before) RETURN_IF_ERROR(SetMode(file_, path_, *before));
  if (renameat(folder_.number(), from.c_str(), folder_.number(), FileNameOf(path_).c_str()) != 0) {
    return FileError(path_, "cannot give it its name", errno);
  }
  committed_ = true;
  if (fsync(folder_.number()) != 0) return FileError(path_, "cannot bring it to the disk", errno);
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
