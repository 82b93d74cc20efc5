#include "server/process/log_sink.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {
namespace {

mode_t TypeOf(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 ? status.st_mode & S_IFMT : 0;
}

// O_NONBLOCK of the descriptor itself would be everybody's who has it, the caller's shell say. A
// regular file has an offset with it, and its writers wait for the disk alone.
int OpenedAgain(int descriptor) {
  const mode_t type = TypeOf(descriptor);
  if (type != S_IFIFO && type != S_IFCHR) return -1;
  return open(absl::StrCat("/proc/self/fd/", descriptor).c_str(),
              O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

}  // namespace

LogSink::LogSink(int descriptor, std::chrono::milliseconds patience)
    : descriptor_(descriptor),
      is_socket_(TypeOf(descriptor) == S_IFSOCK),
      own_(OpenedAgain(descriptor)),
      patience_(patience) {}

LogSink::~LogSink() {
  if (own_ >= 0) close(own_);
}

std::string LogSink::Formatted(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  return {line.data(), line.size()};
}

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  // Who took nothing before is not waited for again.
  if (!WriteRest(lost_ > 0 ? std::chrono::milliseconds(0) : patience_)) {
    ++lost_;
    return;
  }
  if (lost_ > 0) {
    const std::string text =
        absl::StrCat(lost_, " lines of this log were lost, for nobody took them");
    rest_ = Formatted({message.time, {}, message.logger_name, spdlog::level::warn, text});
  }
  lost_ = 0;
  rest_ += Formatted(message);
  WriteRest(patience_);
}

// Whether nothing is left. What cannot be written at all is given up.
bool LogSink::WriteRest(std::chrono::milliseconds patience) {
  const int to = own_ >= 0 ? own_ : descriptor_;
  while (!rest_.empty()) {
    // A pipe that says that it has room has room for so much.
    const size_t bytes = std::min<size_t>(rest_.size(), PIPE_BUF);
    pollfd room = {.fd = to, .events = POLLOUT, .revents = 0};
    const int ready = poll(&room, 1, static_cast<int>(patience.count()));
    if (ready == 0) return false;
    const ssize_t written = ready < 0 ? -1
                            : is_socket_
                                ? send(to, rest_.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : write(to, rest_.data(), bytes);
    if (written >= 0) {
      rest_.erase(0, static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      rest_.clear();
    }
  }
  return true;
}

}  // namespace hilbert_ring::server
