// A peer of a ring, or whoever reaches a rank's port first, that sends what no rank sends: the ring
// ends with an error that names it, and the process goes on.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/peer_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring {
namespace {

using testing::After;

constexpr auto kLimit = std::chrono::seconds(20);
constexpr size_t kBytes = 64 << 20;  // of the step: more than sockets hold

// What travels before the bytes of an operation (Gloo 0.5).
struct Preamble {
  uint64_t bytes = sizeof(Preamble);  // and of what follows
  uint64_t opcode = 0;
  uint64_t slot = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t remote_offset = 0;
};
enum Opcode : uint64_t { kBoundBuffer = 0, kData = 1, kSendReady = 2, kReceiveReady = 3 };

// Rank 1 of two, as far as rank 0 can tell.
class FalsePeer {
 public:
  ~FalsePeer() { Leave(); }

  // Connects to rank 0, and claims an address to which that does not connect itself: the higher one
  // of the two does.
  AllGather Gather() {
    return [this](const std::string& own, Deadline) -> absl::StatusOr<std::vector<std::string>> {
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
    };
  }

  // False where rank 0 has closed the connection.
  bool Write(const void* data, size_t bytes) const {
    return send(socket_, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
  }
  bool Write(const Preamble& preamble) const { return Write(&preamble, sizeof(preamble)); }

  // What rank 0 says of what it has begun.
  Preamble AwaitReady() const {
    Preamble preamble;
    EXPECT_EQ(recv(socket_, &preamble, sizeof(preamble), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(preamble)));
    return preamble;
  }

  void Leave() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  // As a scanner of ports does.
  void Reset() {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    Leave();
  }

 private:
  int socket_ = -1;
};

enum class Way { kFromThePeer, kToThePeer };

// Of rank 0's step.
absl::Status StepWith(FalsePeer& peer, Way way, const std::function<void(FalsePeer&)>& lie) {
  auto rank = MakeGlooCommunicator({.rank = 0,
                                    .size = 2,
                                    .host = "127.0.0.1",
                                    .ring = "a",
                                    .deadline = After(kLimit),
                                    .most_ahead = 10'000},
                                   peer.Gather());
  if (!rank.ok()) return rank.status();
  std::vector<char> block(kBytes, 'x');
  CommStep step{.number = 0};
  if (way == Way::kFromThePeer) {
    step.receives.push_back({.peer = 1, .data = block.data(), .bytes = kBytes});
  } else {
    step.sends.push_back({.peer = 1, .data = block.data(), .bytes = kBytes});
  }
  if (absl::Status posted = (*rank)->Post(step); !posted.ok()) return posted;
  std::thread liar([&] { lie(peer); });
  const Deadline deadline = After(kLimit);
  absl::Status status = (*rank)->Wait(deadline);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline) << status;
  rank->reset();  // by which the liar's writes end
  liar.join();
  return status;
}

void ExpectItIsNamed(const std::function<void(FalsePeer&)>& lie, Way way = Way::kFromThePeer) {
  FalsePeer peer;
  const absl::Status status = StepWith(peer, way, lie);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(PeerOf(status), 1);
}

TEST(GlooPeer, ThatSendsWhatNobodyWaitsFor) {
  ExpectItIsNamed([](FalsePeer& peer) {
    peer.Write({.opcode = kData, .slot = peer.AwaitReady().slot + 1, .length = 8});
  });
}

TEST(GlooPeer, ThatSendsMoreThanIsWaitedFor) {
  for (const uint64_t length : {uint64_t{kBytes + 1}, uint64_t{1} << 63, ~uint64_t{0}}) {
    ExpectItIsNamed([length](FalsePeer& peer) {
      peer.Write({.opcode = kData, .slot = peer.AwaitReady().slot, .length = length});
    });
  }
}

TEST(GlooPeer, ThatLeavesInMidTransfer) {
  ExpectItIsNamed([](FalsePeer& peer) {
    const std::vector<char> part(4096, 'y');
    peer.Write({.opcode = kData, .slot = peer.AwaitReady().slot, .length = kBytes});
    peer.Write(part.data(), part.size());
    peer.Leave();
  });
  ExpectItIsNamed(
      [](FalsePeer& peer) {
        peer.Write({.opcode = kReceiveReady, .slot = peer.AwaitReady().slot});
        peer.AwaitReady();  // of the data
        peer.Leave();
      },
      Way::kToThePeer);
}

TEST(GlooPeer, ThatSendsAnOperationOfAnotherKind) {
  ExpectItIsNamed([](FalsePeer& peer) {
    peer.Write({.opcode = kBoundBuffer, .slot = peer.AwaitReady().slot, .length = kBytes});
  });
}

TEST(GlooPeer, ThatAnnouncesWithoutEnd) {
  for (const uint64_t opcode : {uint64_t{kSendReady}, uint64_t{kReceiveReady}, uint64_t{77}}) {
    ExpectItIsNamed([opcode](FalsePeer& peer) {
      std::vector<Preamble> many(1000, Preamble{.opcode = opcode});
      for (uint64_t slot = 0; slot < 1'000'000; slot += many.size()) {
        for (size_t i = 0; i < many.size(); ++i) many[i].slot = slot + i;
        if (!peer.Write(many.data(), many.size() * sizeof(Preamble))) return;
      }
      ADD_FAILURE() << "a million operations of kind " << opcode << " were taken";
    });
  }
}

// How a step ends that waits for a peer which announces operations without end, each of which takes
// longer than the one before. `end` begins when there are many.
absl::Status FloodedStep(const std::function<absl::Status(Communicator&)>& end) {
  FalsePeer peer;
  auto rank = MakeGlooCommunicator(
      {.rank = 0, .size = 2, .host = "127.0.0.1", .ring = "a", .deadline = After(kLimit)},
      peer.Gather());
  if (!rank.ok()) return rank.status();
  std::vector<char> block(kBytes);
  CommStep step{.number = 0};
  step.receives.push_back({.peer = 1, .data = block.data(), .bytes = kBytes});
  if (absl::Status posted = (*rank)->Post(step); !posted.ok()) return posted;
  std::atomic<int64_t> announced = 0;
  std::thread liar([&] {
    std::vector<Preamble> many(1000, Preamble{.opcode = kSendReady});
    while (true) {
      for (Preamble& one : many) one.slot = static_cast<uint64_t>(announced++);
      if (!peer.Write(many.data(), many.size() * sizeof(Preamble))) return;
    }
  });
  while (announced < 100'000) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  absl::Status status = end(**rank);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  rank->reset();
  liar.join();
  return status;
}

// Whoever aborts needs the connection that the peer keeps busy.
TEST(GlooPeer, ThatAnnouncesWithoutEndHoldsUpNoAbort) {
  const absl::Status status = FloodedStep([](Communicator& rank) {
    rank.Abort("enough");
    return rank.Wait(After(kLimit));
  });
  EXPECT_TRUE(absl::IsAborted(status)) << status;
}

// So does Gloo when the time is over.
TEST(GlooPeer, ThatAnnouncesWithoutEndHoldsUpNoDeadline) {
  const absl::Status status =
      FloodedStep([](Communicator& rank) { return rank.Wait(After(std::chrono::seconds(1))); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(PeerOf(status), 1);
}

TEST(GlooPeer, ThatIsGoneWhenItsConnectionIsTaken) {
  for (int trial = 0; trial < 200; ++trial) {
    FalsePeer peer;
    const auto gather = [&peer](const std::string& own, Deadline deadline) {
      auto blobs = peer.Gather()(own, deadline);
      peer.Reset();
      return blobs;
    };
    const auto rank = MakeGlooCommunicator(
        {.rank = 0, .size = 2, .host = "127.0.0.1", .ring = "a", .deadline = After(kLimit)},
        gather);
    // Where it was taken before that, the first step fails.
    EXPECT_TRUE(rank.ok() || absl::IsUnavailable(rank.status())) << rank.status();
  }
}

TEST(GlooPeer, ThatSendsAnything) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    ExpectItIsNamed([&random](FalsePeer& peer) {
      std::array<uint64_t, 600> words;
      for (uint64_t& word : words) word = random() >> (random() % 64);
      peer.Write(words.data(), sizeof(words));
      peer.Leave();
    });
  }
}

}  // namespace
}  // namespace hilbert_ring
