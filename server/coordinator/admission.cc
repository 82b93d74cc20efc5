#include "server/coordinator/admission.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::StatusOr<Admission::Turn> Admission::Enter() {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  const int waiting = static_cast<int>(queue_.size()) - 1;
  if (!queue_.empty() && waiting >= max_waiting_) {
    return wire::WithReason(
        absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", waiting,
                                                  " jobs wait, the limit is ", max_waiting_)),
        "QUEUE_FULL");
  }
  return Turn(this, queue_.insert(queue_.end(), 0));
}

void Admission::Close(absl::Status why) {
  const std::lock_guard lock(mutex_);
  closed_ = std::move(why);
  changed_.notify_all();
}

int Admission::running() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? 0 : 1;
}

int Admission::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::max(0, static_cast<int>(queue_.size()) - 1);
}

void Admission::Leave(std::list<int>::iterator place) {
  const std::lock_guard lock(mutex_);
  queue_.erase(place);
  changed_.notify_all();
}

int Admission::Position(std::list<int>::iterator place) {
  return static_cast<int>(std::distance(queue_.begin(), place));
}

Admission::Turn::~Turn() {
  if (admission_ != nullptr) admission_->Leave(place_);
}

absl::Status Admission::Turn::Await(const JobStop& stop, Deadline deadline,
                                    const std::function<absl::Status(int)>& tell) {
  Admission& a = *admission_;
  std::unique_lock lock(a.mutex_);
  int told = 0;
  while (true) {
    if (absl::Status why = stop.why(); !why.ok()) return why;
    const int position = a.Position(place_);
    if (position == 0) return absl::OkStatus();
    if (!a.closed_.ok()) return a.closed_;
    if (position != told) {
      told = position;
      lock.unlock();
      if (absl::Status status = tell(position); !status.ok()) return status;
      lock.lock();
      continue;
    }
    const bool moved = a.changed_.wait_until(lock, stop.token(), deadline, [&] {
      return a.Position(place_) != told || !a.closed_.ok();
    });
    if (!moved && stop.why().ok()) {
      return wire::WithReason(
          absl::ResourceExhaustedError(absl::StrCat("the job waited too long for its turn; ", told,
                                                    " jobs are still before it")),
          "QUEUE_TIMEOUT");
    }
  }
}

}  // namespace hilbert_ring::server
