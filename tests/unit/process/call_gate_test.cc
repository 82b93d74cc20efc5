#include "server/process/call_gate.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CutOffs {
 public:
  std::function<void(absl::Status)> Of(int call) {
    return [this, call](const absl::Status& why) {
      const std::lock_guard lock(mutex_);
      calls_.push_back(call);
      reasons_.push_back(wire::ReasonOf(why));
      changed_.notify_all();
    };
  }
  std::vector<int> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  std::vector<std::string> AwaitReasons(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return reasons_.size() >= count; });
    return reasons_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> calls_;
  std::vector<std::string> reasons_;
};

TEST(CallGate, APeerIsAHost) {
  EXPECT_EQ(PeerHost("ipv4:10.0.0.7:41234"), "10.0.0.7");
  EXPECT_EQ(PeerHost("ipv6:%5B::1%5D:41234"), "::1");
  EXPECT_EQ(PeerHost("ipv6:%5B::ffff:10.0.0.7%5D:41234"), "10.0.0.7");
  EXPECT_EQ(PeerHost("ipv6:%5B2001:db8::7%5D:41234"), "2001:db8::/64");
  EXPECT_EQ(PeerHost("ipv6:%5Bfe80::1%25eth0%5D:41234"), "fe80::/64%eth0");
  EXPECT_EQ(PeerHost("ipv6:%5B2001:db8::7%5D:41234", PeerIs::kAddress), "2001:db8::7");
  EXPECT_EQ(PeerHost("unix:/run/socket:1"), "unix:/run/socket:1");
}

TEST(CallGate, CallsOfAPeerAreCapped) {
  CutOffs off;
  CallGate gate({.calls_per_peer = 2, .open_timeout = hours(1)});
  auto a = gate.Enter("a", off.Of(1));
  ASSERT_TRUE(a.ok() && a->Open());
  {
    auto b = gate.Enter("a", off.Of(2));
    ASSERT_TRUE(b.ok() && b->Open());
    const auto refused = gate.Enter("a", off.Of(3));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(wire::ReasonOf(refused.status()), "TOO_MANY_CALLS");
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("2"));
    EXPECT_TRUE(gate.Enter("b", off.Of(4)).ok()) << "another host has its own limit";
  }
  EXPECT_TRUE(gate.Enter("a", off.Of(5)).ok()) << "a call that has ended does not count";
  EXPECT_TRUE(off.calls().empty());
}

TEST(CallGate, SilentCallsOfAPeerGiveWayToItsNext) {
  CutOffs off;
  CallGate gate({.calls_per_peer = 3, .open_timeout = hours(1)});
  auto opened = gate.Enter("a", off.Of(1));
  ASSERT_TRUE(opened.ok() && opened->Open());
  auto silent = gate.Enter("a", off.Of(2));
  auto later = gate.Enter("a", off.Of(3));
  auto next = gate.Enter("a", off.Of(4));
  ASSERT_TRUE(silent.ok() && later.ok() && next.ok());
  EXPECT_THAT(off.calls(), ElementsAre(2)) << "the longest silent call";
  EXPECT_THAT(off.AwaitReasons(1), ElementsAre("TOO_MANY_CALLS"));
  EXPECT_FALSE(silent->Open()) << "its first message came too late";
  EXPECT_TRUE(next->Open());
  EXPECT_FALSE(next->Open()) << "once";
}

// A cut-off's captures live until it has run, even if other owners release them, and no longer.
TEST(CallGate, ACutOffHasWhatItHoldsUntilItHasRun) {
  CallGate gate({.calls_per_peer = 1, .open_timeout = hours(1)});
  struct Held {
    std::optional<CallGate::Place> place;
  };
  const auto enter = [&gate](auto ran) {
    auto held = std::make_shared<Held>();
    auto place = gate.Enter("a", [held, ran](const absl::Status&) { ran(*held); });
    EXPECT_TRUE(place.ok()) << place.status();
    if (place.ok()) held->place.emplace(*std::move(place));
    return held;
  };
  int cut_off = 0;
  std::shared_ptr<Held> first;
  first = enter([&](Held& held) {
    ++cut_off;
    EXPECT_FALSE(held.place->Open());  // its first message comes; then no other owner has it
    first.reset();
    EXPECT_TRUE(held.place.has_value());
  });
  const std::weak_ptr<Held> was_first = first;
  const std::shared_ptr<Held> second = enter([&](Held&) { ++cut_off; });
  EXPECT_EQ(cut_off, 1);
  EXPECT_TRUE(was_first.expired());
  EXPECT_EQ(second.use_count(), 2);
  EXPECT_TRUE(second->place->Open());
  EXPECT_EQ(second.use_count(), 1) << "an opened call keeps no cut-off";
}

TEST(CallGate, SilentCallsAreCutOffInTime) {
  CutOffs off;
  CallGate gate({.calls_per_peer = 10, .open_timeout = milliseconds(50)});
  auto opened = gate.Enter("a", off.Of(1));
  ASSERT_TRUE(opened.ok() && opened->Open());
  const auto start = Clock::now();
  auto first = gate.Enter("a", off.Of(2));
  auto second = gate.Enter("b", off.Of(3));
  EXPECT_THAT(off.AwaitReasons(2), ElementsAre("CLIENT_IDLE", "CLIENT_IDLE"));
  EXPECT_GE(Clock::now() - start, milliseconds(50));
  EXPECT_THAT(off.calls(), ElementsAre(2, 3));
  EXPECT_FALSE(first->Open());
  EXPECT_FALSE(second->Open());
}

TEST(CallGate, ThePeerWithMostSilentCallsGivesWay) {
  CutOffs off;
  CallGate gate({.calls_per_peer = 10, .open_timeout = hours(1)});
  auto a = gate.Enter("a", off.Of(1));
  auto b1 = gate.Enter("b", off.Of(2));
  auto b2 = gate.Enter("b", off.Of(3));
  EXPECT_TRUE(gate.CutOffOne());
  EXPECT_TRUE(gate.CutOffOne());
  EXPECT_TRUE(gate.CutOffOne());
  EXPECT_EQ(off.calls().front(), 2);
  EXPECT_EQ(off.calls().size(), 3u);
  EXPECT_FALSE(gate.CutOffOne()) << "no silent call is left";
}

}  // namespace
}  // namespace hilbert_ring::server
