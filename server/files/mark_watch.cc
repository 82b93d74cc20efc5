#include "server/files/mark_watch.h"

#include <utility>

#include "server/files/data_root.h"

namespace hilbert_ring::server {

MarkWatch::MarkWatch(std::string root, std::chrono::milliseconds interval)
    : root_(std::move(root)), interval_(interval) {
  if (!root_.empty()) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void MarkWatch::SetOnChange(std::function<void()> on_change) {
  const MutexLock lock(telling_);
  on_change_ = std::move(on_change);
}

void MarkWatch::Look(const std::string& mark_file) {
  const MutexLock lock(mutex_);
  if (mark_file == mark_file_) return;
  mark_file_ = mark_file;
  look_now_ = true;
  wake_.notify_all();
}

std::string MarkWatch::mark() const {
  const MutexLock lock(mutex_);
  return mark_;
}

void MarkWatch::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::string file;
    {
      const MutexLock lock(mutex_);
      look_now_ = false;
      file = mark_file_;
    }
    std::string mark = file.empty() ? "" : ReadMark(root_, file);
    bool changed = false;
    {
      const MutexLock lock(mutex_);
      changed = mark != mark_;
      mark_ = std::move(mark);
    }
    if (changed) {
      const MutexLock telling(telling_);
      if (on_change_) on_change_();
    }
    MutexLock lock(mutex_);
    wake_.wait_for(lock, stop, interval_,
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return look_now_; });
  }
}

}  // namespace hilbert_ring::server
