#include "client/cpp/pending_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {

absl::StatusOr<PendingFile> PendingFile::Create(std::string path) {
  struct stat existing;
  if (stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot write: exists and is not a file"));
  }
  PendingFile file(std::move(path), -1);
  const std::string partial = file.partial_path();
  // Not truncated before the lock is held: somebody else may be writing it.
  const int fd = open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(partial, ": cannot create"));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::AlreadyExistsError(absl::StrCat(partial, ": is being written already"));
  }
  file.fd_ = fd;
  if (ftruncate(fd, 0) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(partial, ": cannot truncate"));
  }
  return file;
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

PendingFile& PendingFile::operator=(PendingFile&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

PendingFile::~PendingFile() { Discard(); }

void PendingFile::Discard() {
  if (fd_ < 0) return;
  unlink(partial_path().c_str());
  close(std::exchange(fd_, -1));
}

absl::Status PendingFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(
          errno, absl::StrCat(partial_path(), ": cannot write ", bytes.size(), " bytes"));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status PendingFile::Commit() {
  if (rename(partial_path().c_str(), path_.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot rename from ", partial_path()));
  }
  close(std::exchange(fd_, -1));
  return absl::OkStatus();
}

}  // namespace hilbert_ring::client
