#include "engine/comm/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace hilbert_ring {
namespace {

bool CanBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool bound = bind(fd, address.ai_addr, address.ai_addrlen) == 0;
  close(fd);
  return bound;
}

}  // namespace

absl::StatusOr<std::string> LocalAddress(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &first); error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("host is '", host, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(first, freeaddrinfo);
  for (const addrinfo* address = first; address != nullptr; address = address->ai_next) {
    char text[NI_MAXHOST] = {};
    if (CanBind(*address) && getnameinfo(address->ai_addr, address->ai_addrlen, text, sizeof(text),
                                         nullptr, 0, NI_NUMERICHOST) == 0) {
      return std::string(text);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("host is '", host, "', which is no address of this machine"));
}

}  // namespace hilbert_ring
