#include "server/process/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/process/host_port.h"

namespace hilbert_ring::server {
namespace {

constexpr int kBacklog =
    4096;  // connections that nobody has accepted; the kernel may bound it lower

std::string Describe(int error) {
  switch (error) {
    case EADDRINUSE:
      return "another process listens on this port; choose another one (0: any that is free)";
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

// A socket that listens at the address, or -1 and errno.
int Listen(const sockaddr* address, socklen_t length) {
  const int descriptor = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return -1;
  // Connections of a server that has just ended stay at its port for a minute.
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

void SetPort(sockaddr* address, int port) {
  const in_port_t number = htons(static_cast<in_port_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  }
}

int PortOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(descriptor, at, &length) != 0) return 0;
  return ntohs(at->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(at)->sin6_port
                                         : reinterpret_cast<sockaddr_in*>(at)->sin_port);
}

// Of IPv6 and IPv4 both; -1 where the machine has no IPv6.
int ListenEverywhere(int port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  address.sin6_port = htons(static_cast<in_port_t>(port));
  return Listen(reinterpret_cast<sockaddr*>(&address), sizeof(address));
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
  ListeningSockets sockets;
  if (IsWildcard(host)) {
    const int descriptor = ListenEverywhere(port);
    if (descriptor >= 0) {
      sockets.descriptors_.push_back(descriptor);
      sockets.port_ = PortOf(descriptor);
      return sockets;
    }
    if (errno == EADDRINUSE || errno == EACCES) {
      return absl::UnavailableError(absl::StrCat(where, Describe(errno)));
    }
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0) {
    return absl::UnavailableError(
        absl::StrCat(where, "the host is no address: ", gai_strerror(failure)));
  }
  // One of a name's addresses is enough.
  int error = EADDRNOTAVAIL;
  for (addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (sockets.port_ != 0) SetPort(address->ai_addr, sockets.port_);
    const int descriptor = Listen(address->ai_addr, address->ai_addrlen);
    if (descriptor < 0) {
      error = errno;
      continue;
    }
    sockets.descriptors_.push_back(descriptor);
    if (sockets.port_ == 0) sockets.port_ = PortOf(descriptor);
  }
  freeaddrinfo(found);
  if (sockets.descriptors_.empty()) {
    return absl::UnavailableError(absl::StrCat(where, Describe(error)));
  }
  return sockets;
}

}  // namespace hilbert_ring::server
