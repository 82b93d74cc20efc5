#include "server/process/connection_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/process/open_connections.h"
#include "server/process/socket_peer.h"

namespace hilbert_ring::server {
namespace {

// The kernel has no descriptor or memory for a connection: some may be free a little later.
constexpr std::chrono::milliseconds kPause{50};

// Descriptors that connections leave to the service's own work: workers, files, shared memory.
constexpr int kMostDescriptorsKept = 256;

int MostDescriptors() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMostDescriptorsKept;
  const auto most = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 24));
  return most - std::min(kMostDescriptorsKept, most / 4);
}

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionListener>> ConnectionListener::Start(
    ListeningSockets sockets, const Limits& limits, Handlers handlers) {
  const int end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (end < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptor for a listener: ", std::strerror(errno)));
  }
  std::unique_ptr<ConnectionListener> listener(
      new ConnectionListener(std::move(sockets), end, std::move(handlers)));
  listener->thread_ =
      std::thread([accepting = listener.get(), limits] { accepting->Accept(limits); });
  return listener;
}

ConnectionListener::ConnectionListener(ListeningSockets sockets, int end, Handlers handlers)
    : sockets_(std::move(sockets)), handlers_(std::move(handlers)), end_(end) {}

ConnectionListener::~ConnectionListener() {
  eventfd_write(end_, 1);
  if (thread_.joinable()) thread_.join();
  close(end_);
}

bool ConnectionListener::EndsWithin(std::chrono::milliseconds time) const {
  pollfd end{.fd = end_, .events = POLLIN, .revents = 0};
  return poll(&end, 1, static_cast<int>(time.count())) > 0;
}

void ConnectionListener::Accept(const Limits& limits) {
  const auto is_open = [is = limits.peer](int descriptor,
                                          const OpenConnections::Connection& connection) {
    const auto peer = PeerOfSocket(descriptor, is);
    return peer.has_value() && *peer == connection;
  };
  OpenConnections open({.per_peer = limits.connections_per_peer, .descriptors = MostDescriptors()},
                       is_open);
  std::vector<pollfd> waiting;
  for (const int socket : sockets_.descriptors())
    waiting.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  waiting.push_back({.fd = end_, .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;  // a signal
    if (waiting.back().revents != 0) return;
    for (const pollfd& socket : waiting) {
      if (socket.revents == 0) continue;
      const int connection = accept4(socket.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (connection < 0) {
        const int error = errno;
        if (!IsShortage(error)) continue;  // the peer has gone meanwhile
        if (handlers_.refused) {
          handlers_.refused(absl::ResourceExhaustedError(
              absl::StrCat("a connection waits: ", std::strerror(error))));
        }
        if (EndsWithin(kPause)) return;
        continue;
      }
      auto peer = PeerOfSocket(connection, limits.peer);
      absl::Status admitted = peer.has_value()
                                  ? open.Admit(connection, *std::move(peer), Clock::now())
                                  : absl::UnavailableError("the peer has gone");
      if (admitted.ok()) {
        handlers_.serve(socket.fd, connection);
        continue;
      }
      close(connection);
      if (absl::IsResourceExhausted(admitted) && handlers_.refused) handlers_.refused(admitted);
    }
  }
}

}  // namespace hilbert_ring::server
