#include "server/coordinator/admission.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

const auto kSilent = [](int) { return absl::OkStatus(); };

Deadline In(milliseconds time) { return Clock::now() + time; }

TEST(Admission, OneRunsAndTheOthersFollowInOrder) {
  Admission admission(8);
  JobStop stop;
  std::optional<Admission::Turn> first(*admission.Enter());
  ASSERT_TRUE(first->Await(stop, In(milliseconds(0)), kSilent).ok());
  EXPECT_EQ(admission.running(), 1);
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::vector<int>> told(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    auto turn = admission.Enter();
    ASSERT_TRUE(turn.ok());
    threads.emplace_back([&, i, turn = *std::move(turn)]() mutable {
      ASSERT_TRUE(turn.Await(stop, In(milliseconds(10'000)),
                             [&](int before) {
                               told[i].push_back(before);
                               return absl::OkStatus();
                             })
                      .ok());
      const std::lock_guard lock(mutex);
      order.push_back(i);
    });
  }
  EXPECT_EQ(admission.waiting(), 4);
  first.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
  for (const std::vector<int>& positions : told) {
    EXPECT_TRUE(std::is_sorted(positions.rbegin(), positions.rend()));
  }
  EXPECT_EQ(admission.running(), 0);
}

TEST(Admission, AFullQueueRefuses) {
  Admission admission(1);
  auto running = admission.Enter();
  auto waiting = admission.Enter();
  ASSERT_TRUE(running.ok() && waiting.ok());
  const auto refused = admission.Enter();
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_EQ(wire::ReasonOf(refused.status()), "QUEUE_FULL");
  Admission none(0);
  auto alone = none.Enter();
  EXPECT_TRUE(alone.ok());
  EXPECT_FALSE(none.Enter().ok());
}

TEST(Admission, WaitsEnd) {
  Admission admission(8);
  auto running = admission.Enter();
  {
    auto turn = admission.Enter();
    JobStop stop;
    EXPECT_EQ(wire::ReasonOf(turn->Await(stop, In(milliseconds(20)), kSilent)), "QUEUE_TIMEOUT");
  }
  {
    auto turn = admission.Enter();
    JobStop stop;
    std::thread canceller([&] {
      std::this_thread::sleep_for(milliseconds(20));
      stop.Request(absl::CancelledError("client"));
    });
    EXPECT_TRUE(absl::IsCancelled(turn->Await(stop, In(milliseconds(10'000)), kSilent)));
    canceller.join();
  }
  {
    auto turn = admission.Enter();
    JobStop stop;
    EXPECT_TRUE(absl::IsAborted(turn->Await(stop, In(milliseconds(10'000)), [](int) {
      return absl::AbortedError("the client does not listen");
    })));
  }
  auto turn = admission.Enter();
  JobStop stop;
  std::thread closer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    admission.Close(absl::UnavailableError("stopping"));
  });
  EXPECT_TRUE(absl::IsUnavailable(turn->Await(stop, In(milliseconds(10'000)), kSilent)));
  closer.join();
  EXPECT_TRUE(absl::IsUnavailable(admission.Enter().status()));
  // Whose turn it is goes on.
  EXPECT_TRUE(running->Await(stop, In(milliseconds(0)), kSilent).ok());
}

}  // namespace
}  // namespace hilbert_ring::server
