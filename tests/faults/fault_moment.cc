#include "tests/faults/fault_moment.h"

#include <chrono>
#include <utility>

namespace hilbert_ring::testing {

const char* PhaseName(Phase phase) {
  constexpr const char* kNames[] = {"before",  "any time", "admission",
                                    "receive", "compute",  "send"};
  return kNames[static_cast<int>(phase)];
}

Moment DrawMoment(std::mt19937_64& random) {
  constexpr Phase kPhases[] = {Phase::kBefore,  Phase::kAnyTime, Phase::kAnyTime, Phase::kAdmission,
                               Phase::kReceive, Phase::kReceive, Phase::kCompute, Phase::kCompute,
                               Phase::kCompute, Phase::kSend};
  return {.phase = kPhases[random() % std::size(kPhases)],
          .part = std::uniform_real_distribution<>(0, 1)(random)};
}

FaultMoment::FaultMoment(const Moment& moment, double job_seconds, std::function<void()> fault)
    : moment_(moment), job_seconds_(job_seconds), fault_(std::move(fault)) {
  if (moment_.phase == Phase::kBefore) Fire();
  if (moment_.phase == Phase::kAnyTime) FireAfter(moment_.part * job_seconds_);
}

FaultMoment::~FaultMoment() { Settle(); }

std::function<void(const client::AttendProgress&)> FaultMoment::progress() {
  return [this](const client::AttendProgress& progress) { Note(progress); };
}

bool FaultMoment::Settle() {
  const std::lock_guard lock(mutex_);
  settled_ = true;
  return fired_;
}

void FaultMoment::Note(const client::AttendProgress& progress) {
  const auto part = [](int64_t done, int64_t all) {
    return static_cast<double>(done) / static_cast<double>(all);
  };
  switch (moment_.phase) {
    case Phase::kBefore:
    case Phase::kAnyTime:
      return;
    case Phase::kAdmission:
      if (progress.admitted) Fire();
      return;
    case Phase::kReceive:
      if (part(progress.bytes_sent, progress.bytes_to_send) >= moment_.part) Fire();
      return;
    case Phase::kCompute:
      if (progress.bytes_sent >= progress.bytes_to_send) FireAfter(moment_.part * job_seconds_);
      return;
    case Phase::kSend:
      if (progress.rows_placed > 0 && part(progress.rows_placed, progress.tokens) >= moment_.part) {
        Fire();
      }
      return;
  }
}

void FaultMoment::FireAfter(double seconds) {
  if (timer_.joinable()) return;
  timer_ = std::jthread([this, seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    Fire();
  });
}

void FaultMoment::Fire() {
  const std::lock_guard lock(mutex_);
  if (fired_ || settled_) return;
  fired_ = true;
  fault_();
}

}  // namespace hilbert_ring::testing
