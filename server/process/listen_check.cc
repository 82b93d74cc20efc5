#include "server/process/listen_check.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/process/host_port.h"

namespace hilbert_ring::server {
namespace {

// errno of a bind; 0 when it was done.
int TryBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno == EAFNOSUPPORT ? 0 : errno;  // the server may fall back to IPv4
  const int reuse = 1;  // as servers do: not in the way of connections that are ending
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  const int error = bind(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  return error;
}

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

}  // namespace

absl::Status CheckCanListen(const std::string& what, const std::string& host, int port) {
  const std::string where =
      absl::StrCat("cannot listen on ", what, " ", HostPort(host, port), ": ");
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0) {
    return absl::UnavailableError(
        absl::StrCat(where, "the host is no address: ", gai_strerror(failure)));
  }
  // One of a name's addresses is enough.
  int error = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    error = TryBind(*address);
    if (error == 0) break;
  }
  freeaddrinfo(found);
  return error == 0 ? absl::OkStatus()
                    : absl::UnavailableError(absl::StrCat(where, Describe(error)));
}

}  // namespace hilbert_ring::server
