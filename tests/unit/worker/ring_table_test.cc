#include "server/worker/ring_table.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

Deadline In(milliseconds time) { return std::chrono::steady_clock::now() + time; }

class Workers {
 public:
  explicit Workers(int size) {
    for (int rank = 0; rank < size; ++rank) {
      tables_.push_back(std::make_unique<RingTable>(MakeRingTransport("127.0.0.1")));
    }
  }

  RingTable& operator[](int rank) { return *tables_[rank]; }

  absl::Status Form(int64_t generation) {
    const int size = static_cast<int>(tables_.size());
    std::vector<std::string> blobs;
    for (int rank = 0; rank < size; ++rank) {
      auto blob = tables_[rank]->Prepare(
          {.ring_id = "ring", .generation = generation, .rank = rank, .size = size},
          In(milliseconds(10'000)));
      if (!blob.ok()) return blob.status();
      blobs.push_back(*std::move(blob));
    }
    std::vector<absl::Status> statuses(size);
    std::vector<std::thread> threads;
    threads.reserve(size);
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back(
          [&, rank] { statuses[rank] = tables_[rank]->Connect("ring", generation, blobs); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<RingTable>> tables_;
};

TEST(RingTable, AFormedRingIsLeasedJobAfterJob) {
  Workers workers(2);
  ASSERT_TRUE(workers.Form(3).ok());
  for (int job = 0; job < 3; ++job) {
    auto a = workers[0].Take("ring", 3);
    auto b = workers[1].Take("ring", 3);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status();
    EXPECT_EQ(wire::ReasonOf(workers[0].Take("ring", 3).status()), "RING_LEASED");
    EXPECT_EQ(a->communicator()->size(), 2);
    EXPECT_EQ(b->communicator()->rank(), 1);
    EXPECT_EQ(a->first_step(), 1 + job * 6);
    char from = static_cast<char>('a' + job), to = 0;
    CommStep send{.number = a->first_step() + 4};
    send.sends.push_back({.peer = 1, .data = &from, .bytes = 1});
    CommStep receive{.number = b->first_step() + 4};
    receive.receives.push_back({.peer = 0, .data = &to, .bytes = 1});
    ASSERT_TRUE(a->communicator()->Post(send).ok());
    ASSERT_TRUE(b->communicator()->Post(receive).ok());
    EXPECT_TRUE(a->communicator()->Wait(In(milliseconds(5000))).ok());
    EXPECT_TRUE(b->communicator()->Wait(In(milliseconds(5000))).ok());
    EXPECT_EQ(to, from);
    a->Finish(5);
    b->Finish(5);
  }
}

TEST(RingTable, AJobThatDoesNotFinishGivesTheRingUp) {
  Workers workers(2);
  ASSERT_TRUE(workers.Form(1).ok());
  { const auto lease = workers[0].Take("ring", 1); }
  EXPECT_EQ(wire::ReasonOf(workers[0].Take("ring", 1).status()), "RING_LEASED");
  ASSERT_TRUE(workers.Form(2).ok());
  EXPECT_TRUE(workers[0].Take("ring", 2).ok());
}

TEST(RingTable, StaleGenerationsAreRefused) {
  Workers workers(2);
  ASSERT_TRUE(workers.Form(5).ok());
  EXPECT_EQ(wire::ReasonOf(workers.Form(5)), "RING_LEASED");
  EXPECT_EQ(wire::ReasonOf(workers.Form(4)), "RING_LEASED");
  EXPECT_FALSE(workers[0].Take("ring", 4).ok());
  EXPECT_FALSE(workers[0].Take("other", 5).ok());
  EXPECT_FALSE(workers[0].Connect("ring", 4, {"", ""}).ok());
  workers[0].Close("ring", 4);  // older: nothing happens
  EXPECT_TRUE(workers[0].Take("ring", 5).ok());
  EXPECT_TRUE(workers.Form(6).ok());
}

TEST(RingTable, CloseEndsWaits) {
  Workers workers(2);
  const RingEnd end{.ring_id = "ring", .generation = 1, .rank = 0, .size = 2};
  ASSERT_TRUE(workers[0].Prepare(end, In(milliseconds(20'000))).ok());
  workers[0].Close("ring", 1);
  EXPECT_FALSE(workers[0].Connect("ring", 1, {"", ""}).ok());

  ASSERT_TRUE(workers.Form(2).ok());
  auto lease = workers[0].Take("ring", 2);
  ASSERT_TRUE(lease.ok());
  char byte = 0;
  CommStep receive{.number = lease->first_step()};
  receive.receives.push_back({.peer = 1, .data = &byte, .bytes = 1});
  ASSERT_TRUE(lease->communicator()->Post(receive).ok());
  std::thread closer([&] {
    std::this_thread::sleep_for(milliseconds(50));
    workers[0].Close("ring", 2);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(lease->communicator()->Wait(In(milliseconds(20'000))).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(2000));
  closer.join();
}

TEST(RingTable, CloseAllLeavesNoRing) {
  Workers workers(2);
  ASSERT_TRUE(workers.Form(7).ok());
  auto lease = workers[0].Take("ring", 7);
  ASSERT_TRUE(lease.ok());
  workers[0].CloseAll();
  workers[0].CloseAll();
  EXPECT_TRUE(absl::IsAborted(lease->communicator()->Post({.number = lease->first_step()})));
  EXPECT_EQ(wire::ReasonOf(workers[0].Take("ring", 7).status()), "RING_LEASED");
  workers[1].CloseAll();
  // Another coordinator counts its generations from 1.
  EXPECT_TRUE(workers.Form(1).ok());
}

TEST(RingTable, ClosingEndsAJoinThatIsUnderWay) {
  std::atomic<bool> joining = false;
  RingTable table({.name = "slow",
                   .join = [&](const RingEnd& end, Deadline deadline, const AllGather& all_gather,
                               const std::function<bool()>& cancelled)
                       -> absl::StatusOr<std::unique_ptr<Communicator>> {
                     EXPECT_EQ(end.ring_id, "ring");
                     if (auto blobs = all_gather("own", deadline); !blobs.ok()) {
                       return blobs.status();
                     }
                     joining = true;
                     while (!cancelled()) std::this_thread::sleep_for(milliseconds(1));
                     return absl::CancelledError("closed");
                   }});
  const RingEnd end{.ring_id = "ring", .generation = 1, .rank = 0, .size = 2};
  const auto blob = table.Prepare(end, In(milliseconds(20'000)));
  ASSERT_TRUE(blob.ok()) << blob.status();
  EXPECT_EQ(*blob, "own");
  std::thread closer([&] {
    while (!joining) std::this_thread::sleep_for(milliseconds(1));
    table.Close("ring", 1);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(table.Connect("ring", 1, {"", ""}).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
  closer.join();
}

TEST(RingTransport, GpusHaveNcclAndSayWhenTheyAreNotThere) {
  EXPECT_EQ(MakeRingTransport("127.0.0.1").name, "gloo");
  const RingTransport nccl = MakeRingTransport("127.0.0.1", 100'000);
  EXPECT_EQ(nccl.name, "nccl");
  const absl::Status status = nccl.join({.rank = 0, .size = 2}, {}, nullptr, nullptr).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST(RingTable, WaitsForPeersAreLimited) {
  Workers workers(2);
  const RingEnd end{.ring_id = "ring", .generation = 1, .rank = 0, .size = 2};
  ASSERT_TRUE(workers[0].Prepare(end, In(milliseconds(200))).ok());
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_FALSE(workers[0].Connect("ring", 1, {"", ""}).ok());
}

}  // namespace
}  // namespace hilbert_ring::server
