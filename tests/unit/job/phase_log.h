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

  std::vector<std::string> phases(const std::string& job_id) const {
    const std::string prefix = absl::StrCat("job ", job_id, ": ");
    std::vector<std::string> phases;
    for (const std::string& line : lines()) {
      const size_t arrow = line.find(" -> ");
      if (absl::StartsWith(line, prefix) && arrow != std::string::npos) {
        phases.push_back(line.substr(arrow + 4));
      }
    }
    return phases;
  }

  std::vector<std::string> lines(spdlog::level::level_enum least = spdlog::level::trace) const {
    const std::lock_guard lock(sink_->mutex);
    std::vector<std::string> lines;
    for (const auto& [level, text] : sink_->lines) {
      if (level >= least) lines.push_back(text);
    }
    return lines;
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
  // Has a mutex of its own: a held job may not keep other jobs from logging.
  struct Sink : spdlog::sinks::base_sink<spdlog::details::null_mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
      std::unique_lock lock(mutex);
      lines.emplace_back(message.level,
                         std::string(message.payload.data(), message.payload.size()));
      if (hold_at.empty() || !absl::EndsWith(lines.back().second, hold_at)) return;
      held = true;
      released.wait(lock, [this] { return hold_at.empty(); });
    }
    void flush_() override {}

    std::mutex mutex;
    std::condition_variable released;
    // Guarded by mutex:
    std::vector<std::pair<spdlog::level::level_enum, std::string>> lines;
    std::string hold_at;
    bool held = false;
  };

  const std::shared_ptr<Sink> sink_;
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace hilbert_ring::testing
