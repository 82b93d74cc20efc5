#pragma once

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace hilbert_ring {

inline int SilentSocket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

inline void ConnectSilently(int client, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<in_port_t>(port));
  (void)connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

// Makes connections until a server of this process has no descriptor for more, then closes them.
// False if that fails.
inline bool TakeAllDescriptors(int port) {
  rlimit before = {};
  if (getrlimit(RLIMIT_NOFILE, &before) != 0) return false;
  const rlimit few = {.rlim_cur = 200, .rlim_max = before.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return false;
  std::vector<int> clients;
  for (int client; (client = SilentSocket()) >= 0;) clients.push_back(client);
  for (const int client : clients) ConnectSilently(client, port);
  usleep(200'000);
  for (const int client : clients) close(client);
  return setrlimit(RLIMIT_NOFILE, &before) == 0 && !clients.empty();
}

}  // namespace hilbert_ring
