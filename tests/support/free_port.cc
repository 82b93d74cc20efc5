#include "tests/support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <random>

namespace hilbert_ring {
namespace {

constexpr int kFirst = 10'000;
constexpr int kTries = 100;

// The first of those that connections and port 0 are given.
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
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, FirstThatIsGiven() - 1);
  for (int i = 0; i < kTries; ++i) {
    if (const int port = ports(random); IsFree(port)) return port;
  }
  return 0;
}

}  // namespace hilbert_ring
