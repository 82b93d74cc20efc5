#include "server/process/connection_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kPause{50};  // after a lack of descriptors or memory

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

ConnectionListener::ConnectionListener(ListeningSockets sockets, Serve serve)
    : sockets_(std::move(sockets)),
      serve_(std::move(serve)),
      thread_([this](const std::stop_token& stop) { Accept(stop); }) {}

ConnectionListener::~ConnectionListener() {
  thread_.request_stop();
  for (const int socket : sockets_.descriptors()) shutdown(socket, SHUT_RDWR);  // wakes poll
}

void ConnectionListener::Accept(const std::stop_token& stop) {
  std::vector<pollfd> waiting;
  for (const int socket : sockets_.descriptors()) {
    waiting.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  }
  while (!stop.stop_requested()) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;  // a signal
    for (const pollfd& socket : waiting) {
      if (socket.revents == 0) continue;
      const int connection = accept4(socket.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (connection >= 0) {
        serve_(socket.fd, connection);
      } else if (IsShortage(errno)) {
        std::this_thread::sleep_for(kPause);
      }
    }
  }
}

}  // namespace hilbert_ring::server
