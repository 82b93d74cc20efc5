#include "tests/unit/job/phase_log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {

class PhaseLog::Sink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  struct Line {
    spdlog::level::level_enum level;
    std::string text;
  };
  std::vector<Line> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_.push_back({message.level, std::string(message.payload.data(), message.payload.size())});
  }
  void flush_() override {}

 private:
  std::vector<Line> lines_;  // guarded by mutex_
};

PhaseLog::PhaseLog() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
  auto logger = std::make_shared<spdlog::logger>("phases", sink_);
  logger->set_level(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

PhaseLog::~PhaseLog() { spdlog::set_default_logger(before_); }

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
