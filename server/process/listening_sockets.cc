#include "server/process/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/host_port.h"

namespace hilbert_ring::server {
namespace {

constexpr int kBacklog = 4096;  // the kernel may lower it

std::string Describe(int error) {
  switch (error) {
    case EADDRINUSE:
      return "another process listens on this port; choose another (0: a free port)";
    case EADDRNOTAVAIL:
      return "the host is no address of this machine";
    case EACCES:
      return "this user may not listen on this port";
    default:
      return std::strerror(error);
  }
}

void SetOption(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof(value));
}

int Listen(const sockaddr* address, socklen_t length) {
  const int descriptor = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return -1;
  // Connections of an ended server hold its port for a minute.
  SetOption(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) SetOption(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(descriptor, address, length) == 0 && listen(descriptor, kBacklog) == 0) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

// sin6_port lies where sin_port does.
in_port_t& PortIn(sockaddr* address) { return reinterpret_cast<sockaddr_in*>(address)->sin_port; }

int PortOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  return getsockname(descriptor, at, &length) == 0 ? ntohs(PortIn(at)) : 0;
}

constexpr std::chrono::milliseconds kPause{50};  // after a lack of descriptors or memory

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

std::string LoopbackHost() {
  const auto can_listen = [](const char* host) { return ListeningSockets::Open("", host, 0).ok(); };
  return !can_listen("127.0.0.1") && can_listen("::1") ? "::1" : "127.0.0.1";
}

ListeningSockets::~ListeningSockets() {
  for (const int descriptor : descriptors_) close(descriptor);
}

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& what,
                                                        const std::string& host, int port) {
  const std::string where =
      absl::StrCat("cannot listen on ", what, " ", HostPort(host, port), ": ");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  ListeningSockets sockets;
  int error = EADDRNOTAVAIL;
  // IPv6's wildcard accepts IPv4 too, but fails without IPv6.
  std::vector<std::string> names = {host};
  if (IsWildcard(host)) names.insert(names.begin(), "::");
  for (const std::string& name : names) {
    addrinfo* found = nullptr;
    const int failure = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (failure != 0) {
      return absl::UnavailableError(
          absl::StrCat(where, "the host is no address: ", gai_strerror(failure)));
    }
    for (addrinfo* address = found; address != nullptr; address = address->ai_next) {
      if (sockets.port_ != 0)
        PortIn(address->ai_addr) = htons(static_cast<uint16_t>(sockets.port_));
      const int descriptor = Listen(address->ai_addr, address->ai_addrlen);
      if (descriptor < 0) {
        error = errno;
        continue;
      }
      sockets.descriptors_.push_back(descriptor);
      if (sockets.port_ == 0) sockets.port_ = PortOf(descriptor);
    }
    freeaddrinfo(found);
    if (!sockets.descriptors_.empty()) return sockets;
    if (error == EADDRINUSE || error == EACCES) break;
  }
  return absl::UnavailableError(absl::StrCat(where, Describe(error)));
}

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
