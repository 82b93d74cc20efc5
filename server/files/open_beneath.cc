#include "server/files/open_beneath.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostPathBytes = 4095;  // PATH_MAX without its zero byte

const wire::Reason& ReasonFor(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return wire::reason::kFileNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return wire::reason::kFileNotPermitted;
    case ELOOP:
    case EXDEV:
    case ENAMETOOLONG:
    case EISDIR:
    case ENXIO:
    case ENODEV:
      return wire::reason::kFilePath;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return wire::reason::kFileNoSpace;
    case ESTALE:
      return wire::reason::kFileChanged;
    default:
      return wire::reason::kFileIo;
  }
}

absl::Status BadPath(std::string_view path, std::string_view why) {
  return wire::ErrorOf(
      wire::reason::kFilePath,
      absl::StrCat("path '", std::string(path.substr(0, 256)), "': ", std::string(why)));
}

bool IsLink(int file) {
  struct stat found = {};
  return fstat(file, &found) == 0 && S_ISLNK(found.st_mode);
}

// Each step starts at an open folder and follows no link.
int OpenStepByStep(int root, std::string_view path, int flags) {
  Descriptor folder;
  int from = root;
  for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/')) {
    const std::string step(path.substr(0, slash));
    Descriptor next(openat(from, step.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (next.number() < 0) return -1;
    if (IsLink(next.number())) {
      errno = ELOOP;
      return -1;
    }
    folder = std::move(next);
    from = folder.number();
    path.remove_prefix(slash + 1);
  }
  Descriptor last(openat(from, std::string(path).c_str(), flags | O_NOFOLLOW));
  if (last.number() < 0) return -1;
  if (!IsLink(last.number())) return last.Release();
  errno = ELOOP;
  return -1;
}

absl::Status CheckRegular(const Descriptor& file, const std::string& path) {
  struct stat found = {};
  if (fstat(file.number(), &found) != 0) return FileError(path, "cannot look at it", errno);
  if (S_ISREG(found.st_mode)) return absl::OkStatus();
  if (S_ISDIR(found.st_mode)) return FileError(path, "must be a file", EISDIR);
  const char* const what = S_ISFIFO(found.st_mode)   ? "a FIFO"
                           : S_ISSOCK(found.st_mode) ? "a socket"
                                                     : "a device";
  return wire::ErrorOf(wire::reason::kFilePath,
                       absl::StrCat(path, ": must be a regular file, is ", what));
}

}  // namespace

absl::Status FileError(std::string_view path, std::string_view what, int error_number) {
  return wire::ErrorOf(
      ReasonFor(error_number),
      absl::StrCat(std::string(path), ": ", std::string(what), ": ", std::strerror(error_number)));
}

absl::Status CheckFilePath(std::string_view path, Owner owner) {
  if (path.empty()) return BadPath(path, "is empty");
  if (path.size() > kMostPathBytes) {
    return BadPath(path,
                   absl::StrCat("has ", path.size(), " bytes, the limit is ", kMostPathBytes));
  }
  if (path.front() == '/') return BadPath(path, "begins with '/', must be beneath the data root");
  if (path.find('\0') != std::string_view::npos) return BadPath(path, "has a zero byte");
  for (std::string_view rest = path; true;) {
    const size_t slash = rest.find('/');
    const std::string_view step = rest.substr(0, slash);
    if (step.empty() || step == "." || step == "..") {
      return BadPath(path, "no part of it may be empty, '.' or '..'");
    }
    if (owner == Owner::kCaller && step.starts_with(kOwnFiles)) {
      return BadPath(path, absl::StrCat("no part of it may begin with ", std::string(kOwnFiles)));
    }
    if (slash == std::string_view::npos) return absl::OkStatus();
    rest.remove_prefix(slash + 1);
  }
}

absl::StatusOr<Descriptor> OpenRoot(const std::string& path) {
  Descriptor root(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.number() >= 0) return root;
  return wire::ErrorOf(wire::reason::kDataRootGone,
                       absl::StrCat("--data-root ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<Descriptor> OpenBeneath(int root, const std::string& path, int flags, Owner owner) {
  RETURN_IF_ERROR(CheckFilePath(path, owner));
  const int opened = OpenStepByStep(root, path, flags | O_CLOEXEC);
  if (opened < 0) return FileError(path, "cannot open", errno);
  return Descriptor(opened);
}

absl::StatusOr<Descriptor> OpenFile(int root, const std::string& path, int flags, Owner owner) {
  ASSIGN_OR_RETURN(const Descriptor found, OpenBeneath(root, path, O_PATH, owner));
  RETURN_IF_ERROR(CheckRegular(found, path));
  ASSIGN_OR_RETURN(Descriptor file, OpenBeneath(root, path, flags | O_NONBLOCK | O_NOCTTY, owner));
  RETURN_IF_ERROR(CheckRegular(file, path));
  return file;
}

absl::StatusOr<Descriptor> OpenFolderOf(int root, const std::string& path, Owner owner) {
  RETURN_IF_ERROR(CheckFilePath(path, owner));
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos) {
    return OpenBeneath(root, path.substr(0, slash), O_RDONLY | O_DIRECTORY);
  }
  Descriptor folder(openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) return FileError(path, "its folder cannot be opened", errno);
  return folder;
}

absl::StatusOr<FileVersion> VersionOf(const Descriptor& file, std::string_view path) {
  struct stat found = {};
  if (fstat(file.number(), &found) != 0) return FileError(path, "cannot look at it", errno);
  return FileVersion{.device = found.st_dev,
                     .inode = found.st_ino,
                     .bytes = found.st_size,
                     .seconds = found.st_mtim.tv_sec,
                     .nanoseconds = found.st_mtim.tv_nsec};
}

}  // namespace hilbert_ring::server
