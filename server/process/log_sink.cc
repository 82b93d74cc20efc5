#include "server/process/log_sink.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {
namespace {

// A reader that lost lines must keep up for so long before it is waited for again: one that takes a
// little now and then would be waited for each time.
constexpr std::chrono::seconds kDistrusted{10};

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
  const bool waits = !lost_at_ || Clock::now() - *lost_at_ > kDistrusted;
  const auto patience = waits ? patience_ : std::chrono::milliseconds(0);
  if (!WriteRest(patience)) {
    ++lost_;
    lost_at_ = Clock::now();
    return;
  }
  if (last_ != '\n') rest_ = "\n";
  if (lost_ > 0) {
    const std::string text =
        absl::StrCat(lost_, " lines of this log were lost, for nobody took them");
    rest_ += Formatted({message.time, {}, message.logger_name, spdlog::level::warn, text});
  }
  told_ = std::exchange(lost_, 0);
  rest_ += Formatted(message);
  WriteRest(patience);
}

// Whether nothing is left. What cannot be written at all is given up.
bool LogSink::WriteRest(std::chrono::milliseconds patience) {
  const int to = own_ >= 0 ? own_ : descriptor_;
  const Deadline due = Clock::now() + patience;
  while (!rest_.empty()) {
    // A pipe that says that it has room has room for so much, unless another writer takes it.
    const size_t bytes = std::min<size_t>(rest_.size(), PIPE_BUF);
    pollfd room = {.fd = to, .events = POLLOUT, .revents = 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
    const int ready = poll(&room, 1, std::max(0, static_cast<int>(left.count())));
    if (ready == 0) return false;
    const ssize_t written = ready < 0 ? -1
                            : is_socket_
                                ? send(to, rest_.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : write(to, rest_.data(), bytes);
    if (written > 0) {
      last_ = rest_[static_cast<size_t>(written) - 1];
      rest_.erase(0, static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      if (Clock::now() >= due) return false;
    } else if (written < 0 && errno != EINTR) {
      GiveUpRest();
    }
  }
  told_ = 0;
  return true;
}

void LogSink::GiveUpRest() {
  const auto ends = static_cast<int64_t>(std::ranges::count(rest_, '\n'));
  const bool of_line_before = rest_.front() == '\n';
  lost_ += told_ + ends - (of_line_before ? 1 : 0) - (told_ > 0 ? 1 : 0);
  told_ = 0;
  lost_at_ = Clock::now();
  rest_.clear();
}

}  // namespace hilbert_ring::server
