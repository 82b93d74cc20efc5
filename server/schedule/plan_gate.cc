#include "server/schedule/plan_gate.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "server/process/deadline.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kPoll{50};  // of `gone`

}  // namespace

bool PlansFast(const JobSpec& spec, int workers) {
  constexpr int64_t kFewVisits = 1 << 20;
  const auto sequences = static_cast<int64_t>(std::max<size_t>(1, spec.sequence_lengths.size()));
  int64_t phases = 0;
  for (const Branch& branch : spec.branches) phases += std::min(branch.dilation, spec.heads);
  // Runs of segments, and pairs of workers that share a segment.
  const int64_t pieces = std::min<int64_t>(sequences, kFewVisits) + 2 * int64_t{workers} * workers;
  return phases < kFewVisits && pieces * phases <= kFewVisits;
}

PlanGate::Turn PlanGate::TakePlace(const std::string& caller) {
  Caller& entry = callers_[caller];
  ++entry.inside;
  entry.last_turn = ++turns_;
  ++inside_;
  return {this, End(caller)};
}

PlanGate::Turn PlanGate::Enter(const std::string& caller, const std::function<bool()>& gone) {
  MutexLock lock(mutex_);
  if (inside_ >= most_ && (callers_.contains(caller) || waiting_ >= waits_.most)) return {};
  ++waiting_;
  Turn turn = Wait(lock, caller, waits_.patience, std::stop_token(), gone);
  --waiting_;
  return turn;
}

absl::StatusOr<PlanGate::Turn> PlanGate::Await(const std::string& caller, const JobStop& stop,
                                               std::chrono::milliseconds patience) {
  MutexLock lock(mutex_);
  Turn turn = Wait(lock, caller, patience, stop.token(), [&stop] { return !stop.why().ok(); });
  const absl::Status why = stop.why();
  if (why.ok() && turn != nullptr) return turn;
  lock.unlock();  // destroying the turn takes the mutex
  if (!why.ok()) return why;
  return wire::ErrorOf(
      wire::reason::kQueueTimeout,
      absl::StrCat("the job waited for ", patience.count(),
                   " ms (--queue-timeout) to be planned: ", most_, " plans are made at once"));
}

PlanGate::Turn PlanGate::Wait(MutexLock& lock, const std::string& caller,
                              std::chrono::milliseconds patience, const std::stop_token& stop,
                              const std::function<bool()>& gone) {
  if (inside_ < most_) return TakePlace(caller);
  Waiter waiter;
  callers_[caller].waiting.push_back(&waiter);
  const auto until = Clock::now() + patience;
  while (!waiter.called && Clock::now() < until && !gone()) {
    called_.wait_until(lock, stop, std::min(until, Clock::now() + kPoll),
                       [&waiter] { return waiter.called; });
  }
  if (waiter.called) return {this, End(caller)};
  const auto entry = callers_.find(caller);
  std::erase(entry->second.waiting, &waiter);
  if (entry->second.inside == 0 && entry->second.waiting.empty()) callers_.erase(entry);
  return {};
}

int PlanGate::waiting() const {
  const MutexLock lock(mutex_);
  int waiting = 0;
  for (const auto& [name, caller] : callers_) waiting += static_cast<int>(caller.waiting.size());
  return waiting;
}

void PlanGate::Leave(const std::string& caller) {
  const MutexLock lock(mutex_);
  --inside_;
  const auto left = callers_.find(caller);
  --left->second.inside;
  CallNext();
  if (left->second.inside == 0 && left->second.waiting.empty()) callers_.erase(left);
}

void PlanGate::CallNext() {
  const auto order = [](const Callers::value_type& caller) {
    const bool waits = !caller.second.waiting.empty();
    return std::tuple(!waits, caller.second.inside, caller.second.last_turn);
  };
  const auto next = std::ranges::min_element(callers_, {}, order);
  if (next == callers_.end() || next->second.waiting.empty()) return;
  next->second.waiting.front()->called = true;
  next->second.waiting.pop_front();
  (void)TakePlace(next->first).release();  // Wait makes the waiter's turn
  called_.notify_all();
}

}  // namespace hilbert_ring::server
