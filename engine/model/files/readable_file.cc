#include "engine/model/files/readable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

absl::Status Changed(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, " was changed while it was read"));
}

absl::StatusOr<FileStamp> StampOf(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  return FileStamp{.device = info.st_dev,
                   .inode = info.st_ino,
                   .bytes = int64_t{info.st_size},
                   .modified_ns = Nanoseconds(info.st_mtim),
                   .changed_ns = Nanoseconds(info.st_ctim)};
}

}  // namespace

absl::StatusOr<ReadableFile> ReadableFile::Open(const std::string& path) {
  return OpenAt(AT_FDCWD, "", path);
}

absl::StatusOr<ReadableFile> ReadableFile::OpenAt(int folder_fd, const std::string& folder,
                                                  const std::string& name) {
  const std::string path = folder.empty() ? name : absl::StrCat(folder, "/", name);
  // O_NONBLOCK: opening a pipe would wait for its writer.
  const int fd = openat(folder_fd, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  auto closed = absl::MakeCleanup([fd] { close(fd); });
  ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(fd, path));
  std::move(closed).Cancel();
  return ReadableFile(path, fd, stamp);
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), stamp_(other.stamp_) {}

ReadableFile& ReadableFile::operator=(ReadableFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

ReadableFile::~ReadableFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ReadableFile::Read(int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(fd_, to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    if (got == 0) return Changed(path_);
    to = to.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

absl::StatusOr<FileStamp> ReadableFile::StampNow() const { return StampOf(fd_, path_); }

absl::Status ReadableFile::CheckUnchanged() const {
  ASSIGN_OR_RETURN(const FileStamp now, StampNow());
  // Replacing the file's name changes only its attributes.
  const bool same = now.bytes == stamp_.bytes && now.modified_ns == stamp_.modified_ns;
  return same ? absl::OkStatus() : Changed(path_);
}

}  // namespace hilbert_ring
