#include "server/files/mark_watch.h"

#include <utility>

#include "server/files/data_root.h"

namespace hilbert_ring::server {

MarkWatch::MarkWatch(std::string root, std::chrono::milliseconds interval,
                     std::chrono::milliseconds answer_limit)
    : root_(std::move(root)), answer_limit_(answer_limit) {
  if (root_.empty()) return;
  watch_.emplace(interval, [this](const std::stop_token& /*stop*/) { LookAgain(); });
}

void MarkWatch::SetOnChange(std::function<void()> on_change) {
  const MutexLock lock(telling_);
  on_change_ = std::move(on_change);
}

void MarkWatch::Look(const std::string& mark_file) {
  {
    const MutexLock lock(mutex_);
    if (mark_file == mark_file_) return;
    mark_file_ = mark_file;
  }
  if (watch_) watch_->Wake();
}

std::string MarkWatch::mark() const {
  const MutexLock lock(mutex_);
  return looking_since_ && Clock::now() - *looking_since_ > answer_limit_ ? "" : mark_;
}

void MarkWatch::LookAgain() {
  std::string file;
  {
    const MutexLock lock(mutex_);
    file = mark_file_;
    looking_since_ = Clock::now();
  }
  std::string mark = file.empty() ? "" : ReadMark(root_, file);
  {
    const MutexLock lock(mutex_);
    looking_since_.reset();
    if (mark == mark_) return;
    mark_ = std::move(mark);
  }
  const MutexLock telling(telling_);
  if (on_change_) on_change_();
}

}  // namespace hilbert_ring::server
