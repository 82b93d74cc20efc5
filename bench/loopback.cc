#include "bench/loopback.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/descriptor.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;  // like a client's chunks

absl::Status Failed(const char* what) { return absl::ErrnoToStatus(errno, what); }

struct Connection {
  Descriptor here, there;
};

absl::StatusOr<Connection> Connect() {
  const Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (bind(listening.number(), any, length) != 0 || listen(listening.number(), 1) != 0 ||
      getsockname(listening.number(), any, &length) != 0) {
    return Failed("a port of the loopback interface");
  }
  Connection made;
  made.here = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(made.here.number(), any, length) != 0) return Failed("connect");
  made.there = Descriptor(accept4(listening.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (made.there.number() < 0) return Failed("accept");
  return made;
}

absl::Status Send(int to, int64_t bytes) {
  const std::vector<std::byte> block(static_cast<size_t>(std::min(kBlockBytes, bytes)));
  while (bytes > 0) {
    const auto some = static_cast<size_t>(std::min(std::ssize(block), bytes));
    const ssize_t sent = send(to, block.data(), some, MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes -= sent;
    } else if (errno != EINTR) {
      return Failed("send");
    }
  }
  return shutdown(to, SHUT_WR) == 0 ? absl::OkStatus() : Failed("shutdown");
}

absl::Status Receive(int from, int64_t bytes) {
  std::vector<std::byte> block(kBlockBytes);
  int64_t came = 0;
  while (true) {
    const ssize_t received = recv(from, block.data(), block.size(), 0);
    if (received > 0) {
      came += received;
    } else if (received == 0) {
      break;
    } else if (errno != EINTR) {
      return Failed("recv");
    }
  }
  if (came == bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(came, " bytes came over the loopback, not ", bytes));
}

}  // namespace

absl::Status CarryOverLoopback(int64_t there, int64_t back) {
  ASSIGN_OR_RETURN(const Connection connection, Connect());
  const int here = connection.here.number(), peer = connection.there.number();
  std::array<absl::Status, 4> ends;
  {
    // A failed thread ends the others.
    const auto end = [&](absl::Status& at, absl::Status status) {
      if (!status.ok()) shutdown(here, SHUT_RDWR);
      at = std::move(status);
    };
    const std::jthread out([&] { end(ends[0], Send(here, there)); });
    const std::jthread out_received([&] { end(ends[1], Receive(peer, there)); });
    const std::jthread in([&] { end(ends[2], Send(peer, back)); });
    end(ends[3], Receive(here, back));
  }
  for (const absl::Status& status : ends) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace hilbert_ring::bench
