// The course of a job as it is logged. A PhaseLog is the log's only sink during its life.
#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {

class PhaseLog {
 public:
  PhaseLog() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("phases", sink_);
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
  }
  ~PhaseLog() {
    Release();
    spdlog::set_default_logger(before_);
  }
  PhaseLog(const PhaseLog&) = delete;
  PhaseLog& operator=(const PhaseLog&) = delete;

  std::vector<std::string> transitions(const std::string& job_id) const {
    const std::string prefix = absl::StrCat("job ", job_id, ": ");
    std::vector<std::string> transitions;
    for (const Line& line : Lines()) {
      if (line.level == spdlog::level::debug && absl::StartsWith(line.text, prefix)) {
        transitions.push_back(line.text.substr(prefix.size()));
      }
    }
    return transitions;
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const Line& line : Lines()) lines.push_back(line.text);
    return lines;
  }

  // Lines logged as errors, such as an unknown transition.
  std::vector<std::string> errors() const {
    std::vector<std::string> errors;
    for (const Line& line : Lines()) {
      if (line.level >= spdlog::level::err) errors.push_back(line.text);
    }
    return errors;
  }

  void HoldAt(const std::string& transition) {
    const std::lock_guard lock(sink_->mutex);
    sink_->hold_at = transition;
    sink_->held = false;
  }
  bool held() const {
    const std::lock_guard lock(sink_->mutex);
    return sink_->held;
  }
  void Release() {
    const std::lock_guard lock(sink_->mutex);
    sink_->hold_at.clear();
    sink_->released.notify_all();
  }

 private:
  struct Line {
    spdlog::level::level_enum level;
    std::string text;
  };
  // Has a mutex of its own: a held job may not keep other jobs from logging.
  struct Sink : spdlog::sinks::base_sink<spdlog::details::null_mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
      std::unique_lock lock(mutex);
      lines.push_back({message.level, std::string(message.payload.data(), message.payload.size())});
      if (hold_at.empty() || !absl::EndsWith(lines.back().text, hold_at)) return;
      held = true;
      released.wait(lock, [this] { return hold_at.empty(); });
    }
    void flush_() override {}

    std::mutex mutex;
    std::condition_variable released;
    std::vector<Line> lines;  // guarded by mutex, like the fields below
    std::string hold_at;
    bool held = false;
  };

  std::vector<Line> Lines() const {
    const std::lock_guard lock(sink_->mutex);
    return sink_->lines;
  }

  const std::shared_ptr<Sink> sink_;
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace hilbert_ring::testing
