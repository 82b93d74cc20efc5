#include "server/process/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::server {
namespace {

absl::Status CannotBeRead() { return absl::ErrnoToStatus(errno, "cannot be read"); }

absl::Status CheckIsRegular(int file) {
  struct stat found = {};
  if (fstat(file, &found) != 0) return CannotBeRead();
  if (S_ISREG(found.st_mode)) return absl::OkStatus();
  const char* const what = S_ISDIR(found.st_mode)    ? "a folder"
                           : S_ISFIFO(found.st_mode) ? "a FIFO"
                           : S_ISSOCK(found.st_mode) ? "a socket"
                                                     : "a device";
  return absl::InvalidArgumentError(absl::StrCat("must be a regular file, is ", what));
}

// fstat's size is no bound: a file may grow, and files of /proc have size 0.
absl::StatusOr<std::string> ReadAtMost(int file, size_t most_bytes) {
  RETURN_IF_ERROR(CheckIsRegular(file));
  std::string text;
  while (text.size() <= most_bytes) {
    std::array<char, 1 << 14> part;
    const ssize_t bytes =
        read(file, part.data(), std::min(part.size(), most_bytes + 1 - text.size()));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return CannotBeRead();
    if (bytes == 0) return text;
    text.append(part.data(), static_cast<size_t>(bytes));
  }
  return absl::InvalidArgumentError(absl::StrCat("has more than ", most_bytes, " bytes"));
}

}  // namespace

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes) {
  // Non-blocking: a FIFO would wait for its writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return CannotBeRead();
  absl::StatusOr<std::string> text = ReadAtMost(file, most_bytes);
  close(file);
  return text;
}

}  // namespace hilbert_ring::server
