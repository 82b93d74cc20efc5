#include "tests/support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

namespace hilbert_ring {
namespace {

constexpr int kFirst = 10'000;
constexpr int kTries = 100;

// Tests run in parallel, and a drawn port is free until its use: each process begins with other
// ports.
constexpr int kOfAProcess = 16;

int FirstThatIsGiven() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first > kFirst ? first : 32'768;
}

bool IsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return bound;
}

}  // namespace

int FreePort() {
  static std::atomic<int> draws = 0;
  const int ports = FirstThatIsGiven() - kFirst;
  const int part = getpid() % (ports / kOfAProcess);
  for (int i = 0; i < kTries; ++i) {
    const int port = kFirst + (part * kOfAProcess + draws++) % ports;
    if (IsFree(port)) return port;
  }
  return 0;
}

}  // namespace hilbert_ring
