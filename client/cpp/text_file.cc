#include "client/cpp/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::client {

std::string TextName(const std::string& path) { return path == "-" ? "stdin" : path; }

absl::StatusOr<std::string> ReadText(const std::string& path, const TextLimit& limit) {
  if (absl::Status status = CheckPath(path); !status.ok()) return status;
  const Descriptor file(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                    : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0)
    return absl::ErrnoToStatus(errno, absl::StrCat(TextName(path), ": cannot open"));
  std::string text;
  char part[1 << 16];
  while (true) {
    const ssize_t bytes = read(file.number(), part, sizeof(part));
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
