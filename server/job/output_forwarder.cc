#include "server/job/output_forwarder.h"

#include "server/job/job_run.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);

}  // namespace

absl::Status OutputForwarder::Forward(int64_t rows_final) {
  {
    const MutexLock lock(mutex_);
    if (rows_final <= rows_final_) return absl::OkStatus();
    rows_final_ = rows_final;
    changed_.notify_all();
  }
  run_.Forwarding(rank_, true);
  absl::StatusOr<bool> all = true;
  if (!thread_.joinable()) all = ForwardFinal(rows_final, kPatience);
  run_.Forwarding(rank_, false);
  if (all.ok() && !*all) thread_ = threads_.Start([this] { ForwardRest(); });
  return all.status();
}

// Returns false if the client does not take all final rows.
absl::StatusOr<bool> OutputForwarder::ForwardFinal(int64_t rows_final, Clock::duration patience) {
  while (cut_ || (cut_ = outputs_.Next(rows_final, chunk_, payload_))) {
    absl::StatusOr<bool> handed =
        run_.Output(rank_, chunk_, payload_, memory_, outputs_.first_slot(), patience);
    if (!handed.ok() || !*handed) return handed;
    cut_ = false;
  }
  return true;
}

void OutputForwarder::ForwardRest() {
  int64_t passed = 0;
  while (stop_.why().ok()) {
    bool all = false;
    {
      MutexLock lock(mutex_);
      changed_.wait(lock, stop_.token(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return rows_final_ > passed || all_final_;
      });
      passed = rows_final_;
      all = all_final_;
    }
    absl::StatusOr<bool> handed = ForwardFinal(passed, kAnyPatience);
    if (!handed.ok()) stop_.Request(handed.status());
    if (all) return;
  }
}

void OutputForwarder::End() {
  run_.Forwarding(rank_, true);  // its worker's silence is no stall
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    all_final_ = true;
    changed_.notify_all();
  }
  thread_.Join();
}

}  // namespace hilbert_ring::server
