// A rank that ends before its job is computed does not keep others waiting. No transfer outlives
// its memory.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::testing {
namespace {

constexpr std::chrono::seconds kLong{60};  // only a failing test takes it

class WatchedCommunicator : public Communicator {
 public:
  explicit WatchedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }
  absl::Status Post(const CommStep& step) override {
    absl::Status status = inner_->Post(step);
    in_flight_ = status.ok() && !(step.sends.empty() && step.receives.empty());
    if (in_flight_) ++posted_;
    return status;
  }
  absl::Status Wait(Deadline deadline) override {
    absl::Status status = inner_->Wait(deadline);
    in_flight_ = false;
    return status;
  }
  void Abort(const std::string& reason) override {
    aborted_ = true;
    inner_->Abort(reason);
  }

  int posted() const { return posted_; }
  bool in_flight() const { return in_flight_; }
  bool aborted() const { return aborted_; }

 private:
  const std::unique_ptr<Communicator> inner_;
  std::atomic<int> posted_ = 0;
  std::atomic<bool> in_flight_ = false, aborted_ = false;
};

class BrokenDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> /*tasks*/,
                                       const AttendControl& /*control*/) override {
    return absl::InternalError("the device broke");
  }
};

class NotedDevice : public ForwardingDevice {
 public:
  NotedDevice(std::unique_ptr<Device> device, std::atomic<bool>& computed)
      : ForwardingDevice(std::move(device)), computed_(computed) {}
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    auto figures = ForwardingDevice::Attend(tasks, control);
    computed_ = true;
    return figures;
  }

 private:
  std::atomic<bool>& computed_;
};

class EndedEarly : public ::testing::TestWithParam<RingKind> {
 protected:
  EndedEarly()
      : plan_(*MakePlan(PlainSpec({.tokens = 64}), 2)),
        ring_(*MakeCommunicatorRing(GetParam(), 2)),
        first_(std::move(ring_[0])) {}

  // Runs rank 0, whose peer is idle.
  absl::Status Run(std::unique_ptr<Device> device, const ExecuteControl& control) {
    auto store = ShardStore::Make(*device, plan_, 0);
    if (!store.ok()) return store.status();
    return Execute(plan_, 0, **store, *device, &first_, 0, control).status();
  }

  static std::unique_ptr<Device> MakeOne() { return *MakeDevice({.threads = 1}); }
  static Deadline Late() { return std::chrono::steady_clock::now() + kLong; }

  const Plan plan_;
  CommunicatorRing ring_;
  WatchedCommunicator first_;
};

INSTANTIATE_TEST_SUITE_P(Rings, EndedEarly,
                         ::testing::Values(RingKind::kInProcess, RingKind::kGloo),
                         [](const auto& info) { return RingKindName(info.param); });

TEST_P(EndedEarly, AFailureBesideTransfersAbortsThem) {
  const absl::Status status = Run(std::make_unique<BrokenDevice>(MakeOne()), {.deadline = Late});
  EXPECT_EQ(status, absl::InternalError("the device broke"));
  EXPECT_EQ(first_.posted(), 1);
  EXPECT_TRUE(first_.aborted());
  EXPECT_FALSE(first_.in_flight()) << "what it sends from is freed";
}

TEST_P(EndedEarly, ACancelledRankDoesNotBeginToWait) {
  int64_t waits = 0;
  std::atomic<bool> computed = false;
  const absl::Status status = Run(std::make_unique<NotedDevice>(MakeOne(), computed),
                                  {.deadline = Late,
                                   .cancelled = [&] { return computed.load(); },
                                   .waiting = [&](int64_t /*step*/) { ++waits; }});
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(waits, 0);
  EXPECT_TRUE(first_.aborted());
  EXPECT_FALSE(first_.in_flight());
}

TEST_P(EndedEarly, AnAbortEndsAWaitForAPeer) {
  std::jthread canceller;
  const absl::Status status =
      Run(MakeOne(), {.deadline = Late, .waiting = [&](int64_t step) {
                        if (step == 0) return;
                        canceller = std::jthread([this] { first_.Abort("the job was cancelled"); });
                      }});
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_FALSE(first_.in_flight());
}

TEST_P(EndedEarly, AWaitForAPeerEndsAtTheDeadline) {
  const Deadline soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  const absl::Status status = Run(MakeOne(), {.deadline = [soon] { return soon; }});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(std::chrono::steady_clock::now(), soon + kLong / 2);
  EXPECT_FALSE(first_.in_flight());
}

}  // namespace
}  // namespace hilbert_ring::testing
