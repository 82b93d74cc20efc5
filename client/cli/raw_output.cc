#include "client/cli/raw_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/pending_file.h"
#include "client/cpp/steady_clock.h"
#include "client/cpp/write_all.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::cli {
namespace {

constexpr absl::Duration kLookForReader = absl::Milliseconds(50);

bool IsPipe(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

absl::StatusOr<Descriptor> OpenToWrite(const client::OutputPlace& place, const ReaderWait& wait) {
  const std::string& path = place.path;
  if (place.descriptor >= 0) {
    Descriptor own(fcntl(place.descriptor, F_DUPFD_CLOEXEC, 0));
    if (own.number() >= 0) return own;
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  }
  // A file written in place may also be open in another process.
  const int how = place.in_place ? O_APPEND | O_NOCTTY : O_CREAT;
  while (true) {
    // O_NONBLOCK: a blocking wait for a pipe's reader would survive a caught signal.
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | how, 0666);
    if (fd >= 0) {
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      return Descriptor(fd);
    }
    if (errno != ENXIO || !IsPipe(path)) {
      return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
    }
    if (wait.stopped()) {
      return absl::CancelledError(absl::StrCat(path, ": interrupted while the pipe had no reader"));
    }
    if (client::SteadyNow() >= wait.until) {
      return absl::DeadlineExceededError(
          absl::StrCat(path, ": the job's deadline passed while the pipe had no reader"));
    }
    absl::SleepFor(std::min(kLookForReader, wait.until - client::SteadyNow()));
  }
}

}  // namespace

absl::StatusOr<RawOutput> RawOutput::Open(const std::string& path, const ReaderWait& wait) {
  if (absl::EndsWith(path, ".npy")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": --stream writes raw rows; give another name"));
  }
  ASSIGN_OR_RETURN(const client::OutputPlace place, client::FindOutput(path));
  ASSIGN_OR_RETURN(Descriptor fd, OpenToWrite(place, wait));
  return RawOutput(path, std::move(fd), place.in_place);
}

absl::Status RawOutput::Append(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(Begin());
  return client::WriteAll(fd_, bytes, path_);
}

absl::Status RawOutput::End() {
  RETURN_IF_ERROR(Begin());
  if (fdatasync(fd_.number()) == 0 || errno == EINVAL || errno == EROFS) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot write to the disk"));
}

absl::Status RawOutput::Begin() {
  if (std::exchange(begun_, true)) return absl::OkStatus();
  if (ftruncate(fd_.number(), 0) == 0 || errno == EINVAL)
    return absl::OkStatus();  // a pipe cannot be truncated
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot empty"));
}

}  // namespace hilbert_ring::cli
