#include "server/process/open_connections.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {
namespace {

// Between looks at all connections: a peer at its limit cannot make the server look all the time.
constexpr std::chrono::milliseconds kLookInterval{100};

}  // namespace

absl::Status OpenConnections::Admit(int descriptor, Connection connection, Clock::time_point now) {
  Forget(descriptor);  // its last connection has ended, or the number would not be free
  if (descriptor >= limits_.descriptors) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a connection of ", connection.host, " is refused: the process has ",
                     descriptor, " descriptors in use, its limit is ", limits_.descriptors));
  }
  const auto full = [&] {
    const auto of_host = of_host_.find(connection.host);
    return of_host != of_host_.end() && of_host->second >= limits_.per_peer;
  };
  if (full() && now >= next_look_) {
    ForgetEnded(connection.host);
    next_look_ = now + kLookInterval;
  }
  if (full()) {
    return absl::ResourceExhaustedError(absl::StrCat("a connection of ", connection.host,
                                                     " is refused: its host has ", limits_.per_peer,
                                                     ", which is the limit"));
  }
  ++of_host_[connection.host];
  connections_.insert_or_assign(descriptor, std::move(connection));
  return absl::OkStatus();
}

void OpenConnections::Forget(int descriptor) {
  const auto known = connections_.find(descriptor);
  if (known == connections_.end()) return;
  const auto of_host = of_host_.find(known->second.host);
  if (--of_host->second == 0) of_host_.erase(of_host);
  connections_.erase(known);
}

void OpenConnections::ForgetEnded(const std::string& host) {
  std::vector<int> ended;
  for (const auto& [descriptor, connection] : connections_) {
    if (connection.host == host && !is_open_(descriptor, connection)) ended.push_back(descriptor);
  }
  for (const int descriptor : ended) Forget(descriptor);
}

}  // namespace hilbert_ring::server
