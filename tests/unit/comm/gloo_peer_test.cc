// A peer dies while a ring forms or in a step: the ring ends with an error, the process continues.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/peer_error.h"
#include "gtest/gtest.h"
#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring {
namespace {

using testing::After;

constexpr auto kLimit = std::chrono::seconds(20);

// Rank 1 of two, from rank 0's view.
class DyingPeer {
 public:
  ~DyingPeer() { Die(); }

  // Connects to rank 0, and claims the higher address, so that rank 0 only accepts.
  absl::StatusOr<std::vector<std::string>> Connect(const std::string& own) {
    const size_t begin = own.find('\0') + 1;
    const size_t bytes = (own.size() - begin) / 2;
    sockaddr_in address = {};
    std::memcpy(&address, own.data() + begin + bytes, sizeof(address));
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      return absl::ErrnoToStatus(errno, "connect");
    }
    std::string claimed = own;
    address.sin_port = 0xffff;
    for (const size_t at : {begin, begin + bytes}) {
      std::memcpy(claimed.data() + at, &address, sizeof(address));
    }
    return std::vector<std::string>{own, claimed};
  }

  void Write(const void* data, size_t bytes) const { send(socket_, data, bytes, MSG_NOSIGNAL); }

  // Unread bytes reset the connection.
  void Die() {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

 private:
  int socket_ = -1;
};

absl::StatusOr<std::unique_ptr<Communicator>> Rank0(const AllGather& gather) {
  return MakeGlooCommunicator(
      {.rank = 0, .size = 2, .host = "127.0.0.1", .ring = "a", .deadline = After(kLimit)}, gather);
}

TEST(GlooPeer, ThatIsGoneWhenItsConnectionIsTaken) {
  for (int trial = 0; trial < 200; ++trial) {
    DyingPeer peer;
    const auto rank = Rank0([&peer](const std::string& own, Deadline) {
      auto blobs = peer.Connect(own);
      peer.Die();
      return blobs;
    });
    // A connection accepted before the peer dies fails the first step.
    EXPECT_TRUE(rank.ok() || absl::IsUnavailable(rank.status())) << rank.status();
  }
}

// The header of an operation's bytes (Gloo 0.5).
struct Preamble {
  uint64_t bytes = sizeof(Preamble);  // and of the bytes after it
  uint64_t opcode = 1;                // data
  uint64_t slot = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t remote_offset = 0;
};

// A part of an operation, an unexpected one and one of unknown kind throw in Gloo's thread.
TEST(GlooPeer, ThatDiesInAnyOperation) {
  for (const Preamble& sent : {Preamble{.length = 1000}, Preamble{.slot = 5, .length = 8},
                               Preamble{.length = ~uint64_t{0}}, Preamble{.opcode = 77}}) {
    DyingPeer peer;
    const auto rank =
        Rank0([&peer](const std::string& own, Deadline) { return peer.Connect(own); });
    ASSERT_TRUE(rank.ok()) << rank.status();
    std::vector<char> block(1 << 20);
    CommStep step{.number = 0};
    step.receives.push_back({.peer = 1, .data = block.data(), .bytes = std::ssize(block)});
    ASSERT_TRUE((*rank)->Post(step).ok());
    peer.Write(&sent, sizeof(sent));
    peer.Die();
    const absl::Status status = (*rank)->Wait(After(kLimit));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(PeerOf(status), 1);
  }
}

}  // namespace
}  // namespace hilbert_ring
