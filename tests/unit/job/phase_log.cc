#include "tests/unit/job/phase_log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <condition_variable>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {

// Has a mutex of its own: a held job may not keep other jobs from logging.
class PhaseLog::Sink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  struct Line {
    spdlog::level::level_enum level;
    std::string text;
  };
  std::vector<Line> lines() {
    const std::lock_guard lock(lines_mutex_);
    return lines_;
  }
  void HoldAt(const std::string& transition) {
    const std::lock_guard lock(lines_mutex_);
    hold_at_ = transition;
    held_ = false;
  }
  bool held() {
    const std::lock_guard lock(lines_mutex_);
    return held_;
  }
  void Release() {
    const std::lock_guard lock(lines_mutex_);
    hold_at_.clear();
    released_.notify_all();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::unique_lock lock(lines_mutex_);
    lines_.push_back({message.level, std::string(message.payload.data(), message.payload.size())});
    if (hold_at_.empty() || !absl::EndsWith(lines_.back().text, hold_at_)) return;
    held_ = true;
    released_.wait(lock, [this] { return hold_at_.empty(); });
  }
  void flush_() override {}

 private:
  std::mutex lines_mutex_;
  std::condition_variable released_;
  std::vector<Line> lines_;  // guarded by lines_mutex_, like the fields below
  std::string hold_at_;
  bool held_ = false;
};

PhaseLog::PhaseLog() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
  auto logger = std::make_shared<spdlog::logger>("phases", sink_);
  logger->set_level(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

PhaseLog::~PhaseLog() {
  Release();
  spdlog::set_default_logger(before_);
}

void PhaseLog::HoldAt(const std::string& transition) { sink_->HoldAt(transition); }

bool PhaseLog::held() const { return sink_->held(); }

void PhaseLog::Release() { sink_->Release(); }

std::vector<std::string> PhaseLog::transitions(const std::string& job_id) const {
  const std::string prefix = absl::StrCat("job ", job_id, ": ");
  std::vector<std::string> transitions;
  for (const Sink::Line& line : sink_->lines()) {
    if (line.level == spdlog::level::debug && absl::StartsWith(line.text, prefix)) {
      transitions.push_back(line.text.substr(prefix.size()));
    }
  }
  return transitions;
}

std::vector<std::string> PhaseLog::lines() const {
  std::vector<std::string> lines;
  for (const Sink::Line& line : sink_->lines()) lines.push_back(line.text);
  return lines;
}

std::vector<std::string> PhaseLog::errors() const {
  std::vector<std::string> errors;
  for (const Sink::Line& line : sink_->lines()) {
    if (line.level >= spdlog::level::err) errors.push_back(line.text);
  }
  return errors;
}

}  // namespace hilbert_ring::testing
