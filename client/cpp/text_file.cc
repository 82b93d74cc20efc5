#include "client/cpp/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"

namespace hilbert_ring::client {

std::string TextName(const std::string& path) { return path == "-" ? "stdin" : path; }

absl::StatusOr<std::string> ReadText(const std::string& path, const TextLimit& limit) {
  if (absl::Status status = CheckPath(path); !status.ok()) return status;
  const int fd = path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                             : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(TextName(path), ": cannot open"));
  const absl::Cleanup close_file = [fd] { close(fd); };
  std::string text;
  char part[1 << 16];
  while (true) {
    const ssize_t bytes = read(fd, part, sizeof(part));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return absl::ErrnoToStatus(errno, absl::StrCat(TextName(path), ": cannot read"));
    if (bytes == 0) return text;
    text.append(part, static_cast<size_t>(bytes));
    if (text.size() > limit.bytes) {
      return absl::OutOfRangeError(
          absl::StrCat(TextName(path), ": has more than ", limit.bytes, " bytes, ", limit.words));
    }
  }
}

}  // namespace hilbert_ring::client
