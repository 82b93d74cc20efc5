#include "server/files/mark_watch.h"

#include <utility>

#include "absl/status/statusor.h"
#include "server/files/data_root.h"
#include "wire/reason.h"

namespace hilbert_ring::server {

MarkWatch::MarkWatch(std::string root, std::chrono::milliseconds interval,
                     std::chrono::milliseconds answer_limit)
    : root_(std::move(root)), answer_limit_(answer_limit) {
  if (root_.empty()) return;
  watch_.emplace(interval, [this](const std::stop_token& stop) { LookAgain(stop); });
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
  return mark_;
}

std::string MarkWatch::Read(const std::string& mark_file, const std::stop_token& stop) {
  if (mark_file.empty() || steps_.left() > 0) return "";
  const auto mark = steps_.Run<absl::StatusOr<std::string>>(
      {.what = "--data-root",
       .reason = wire::reason::kDataRootGone,
       .limit = answer_limit_,
       .why_leave =
           [&stop] {
             return stop.stop_requested() ? absl::CancelledError("stopping") : absl::OkStatus();
           }},
      [root = root_, mark_file] { return ReadMark(root, mark_file); });
  return mark.value_or("");
}

void MarkWatch::LookAgain(const std::stop_token& stop) {
  std::string file;
  {
    const MutexLock lock(mutex_);
    file = mark_file_;
  }
  std::string mark = Read(file, stop);
  if (stop.stop_requested()) return;
  {
    const MutexLock lock(mutex_);
    if (mark == mark_) return;
    mark_ = std::move(mark);
  }
  const MutexLock telling(telling_);
  if (on_change_) on_change_();
}

}  // namespace hilbert_ring::server
